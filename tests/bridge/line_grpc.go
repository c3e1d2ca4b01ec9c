package main

import (
	"context"
	"sync"

	"google.golang.org/grpc"
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
