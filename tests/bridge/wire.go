package main

import (
	"encoding/json"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
)

const (
	overWebSocket = "websocket"
	overGRPC      = "grpc"

	openMethod = "/bridge.Sessions/Open"
	jsonCodec  = "json"
	bufferSize = 4 << 10 // messages are some 20 bytes
	windowSize = 64 << 10
)

var protocols = []string{overWebSocket, overGRPC}

// message is what goes either way in a session. Users send Seq 1, 2, 3, …; the bridge answers with the same Seq, and
// with Error if it was not the one after the last. Draining it sends by itself, whenever that changes.
type message struct {
	Seq      uint64 `json:"seq,omitempty"`
	Draining *bool  `json:"draining,omitempty"`
	Error    string `json:"error,omitempty"`
}

// line is one end of an open session's connection.
type line interface {
	// send may be called by several at once.
	send(message) error
	// receive returns io.EOF when the other end closed the session in order. One caller at a time.
	receive() (message, error)
	// end closes the session in order; the other end sees io.EOF.
	end()
}

// userEnd is the user's end of a line.
type userEnd interface {
	line
	// drop lets go of the connection.
	drop()
}

// opener is what the gRPC service calls.
type opener interface {
	open(grpc.ServerStream) error
}

var serviceDesc = grpc.ServiceDesc{
	ServiceName: "bridge.Sessions",
	HandlerType: (*opener)(nil),
	Streams: []grpc.StreamDesc{{
		StreamName:    "Open",
		Handler:       func(service any, stream grpc.ServerStream) error { return service.(opener).open(stream) },
		ServerStreams: true,
		ClientStreams: true,
	}},
}

type codec struct{}

func (codec) Marshal(value any) ([]byte, error) { return json.Marshal(value) }

func (codec) Unmarshal(data []byte, value any) error { return json.Unmarshal(data, value) }

func (codec) Name() string { return jsonCodec }

func init() { encoding.RegisterCodec(codec{}) }
