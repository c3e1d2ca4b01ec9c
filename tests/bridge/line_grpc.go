package main

import (
	"context"
	"net"
	"strconv"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// servedLine is the bridge's end of a gRPC session: the handler returns when it is ended.
type servedLine struct {
	stream  grpc.ServerStream
	sending sync.Mutex
	ended   context.Context
	finish  context.CancelFunc
}

func newServedLine(stream grpc.ServerStream) *servedLine {
	ended, finish := context.WithCancel(context.Background())
	return &servedLine{stream: stream, ended: ended, finish: finish}
}

func (l *servedLine) send(m message) error {
	l.sending.Lock()
	defer l.sending.Unlock()
	return l.stream.SendMsg(&m)
}

func (l *servedLine) receive() (message, error) {
	var m message
	err := l.stream.RecvMsg(&m)
	return m, err
}

func (l *servedLine) end() { l.finish() }

// userLine is a user's end of a gRPC session, on a connection of its own.
type userLine struct {
	conn    *grpc.ClientConn
	stream  grpc.ClientStream
	sending sync.Mutex
}

var userOptions = []grpc.DialOption{
	grpc.WithTransportCredentials(insecure.NewCredentials()),
	grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithDisableHealthCheck(),
	grpc.WithDefaultCallOptions(grpc.CallContentSubtype(jsonCodec)),
	grpc.WithReadBufferSize(bufferSize), grpc.WithWriteBufferSize(bufferSize),
	grpc.WithStaticStreamWindowSize(windowSize), grpc.WithStaticConnWindowSize(windowSize),
}

// dialGRPC returns once the bridge has taken the session. longest bounds that, not the session.
func dialGRPC(longest context.Context, host string, port int) (userEnd, error) {
	conn, err := grpc.NewClient("passthrough:///"+net.JoinHostPort(host, strconv.Itoa(port)), userOptions...)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(longest, func() { _ = conn.Close() })()
	stream, err := conn.NewStream(context.Background(), &serviceDesc.Streams[0], openMethod)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	header, err := stream.Header()
	if err == nil && header == nil {
		err = stream.RecvMsg(&message{}) // it was refused; this says why
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &userLine{conn: conn, stream: stream}, nil
}

func (l *userLine) send(m message) error {
	l.sending.Lock()
	defer l.sending.Unlock()
	return l.stream.SendMsg(&m)
}

func (l *userLine) receive() (message, error) {
	var m message
	err := l.stream.RecvMsg(&m)
	return m, err
}

func (l *userLine) end() {
	l.sending.Lock()
	defer l.sending.Unlock()
	_ = l.stream.CloseSend()
}

func (l *userLine) drop() { _ = l.conn.Close() }
