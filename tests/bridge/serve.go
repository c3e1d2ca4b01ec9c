package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// bridge is the server.
type bridge struct {
	load    *load
	metrics *metrics
	held    *held
}

// serve runs the bridge until the context ends; then its sessions are closed in order, within a second.
func serve(ctx context.Context, httpAddress, grpcAddress string) error {
	load := &load{}
	metrics := newMetrics(load)
	b := &bridge{load, metrics, newHeld(metrics)}
	httpListener, err := net.Listen("tcp", httpAddress)
	if err != nil {
		return err
	}
	grpcListener, err := net.Listen("tcp", grpcAddress)
	if err != nil {
		return err
	}
	streams := grpc.NewServer(
		grpc.ReadBufferSize(bufferSize), grpc.WriteBufferSize(bufferSize),
		// a window of its own choice makes it ping at every message
		grpc.StaticStreamWindowSize(windowSize), grpc.StaticConnWindowSize(windowSize),
	)
	streams.RegisterService(&serviceDesc, b)
	broken := make(chan error, 1)
	go func() { broken <- streams.Serve(grpcListener) }()
	go runFrames(ctx, load.demand, metrics.frame)
	go func() {
		broken <- answerHTTP(ctx, httpListener, b.routes(), func() { b.held.close(600 * time.Millisecond) })
	}()
	err = <-broken
	time.AfterFunc(200*time.Millisecond, streams.Stop) // ends the wait below
	streams.GracefulStop()
	return err
}

func (b *bridge) routes() http.Handler {
	mux := newMux()
	mux.HandleFunc("GET /healthz", answering(healthy)) // both listeners are there before it can answer
	mux.Handle("GET /metrics", b.metrics.handler())
	mux.HandleFunc("GET /load", answering(func(*http.Request) (any, error) { return b.load.now(), nil }))
	mux.HandleFunc("POST /load", answering(b.load.set))
	mux.HandleFunc("GET /sessions", answering(func(*http.Request) (any, error) {
		return map[string]int{"sessions": b.held.count()}, nil
	}))
	mux.HandleFunc("GET /drain", answering(func(*http.Request) (any, error) { return b.held.lastTold(), nil }))
	mux.HandleFunc("POST /drain", answering(b.drain))
	mux.HandleFunc("POST /crash", answering(crash))
	mux.HandleFunc("GET /session", b.openWebSocket)
	return mux
}

// drainAnswer is what was last told: Last as it came, how long ago, and how many notices there were.
type drainAnswer struct {
	Draining bool     `json:"draining"`
	Notices  int      `json:"notices"`
	Last     any      `json:"last"`
	LastAt   string   `json:"last_at,omitempty"`
	AgoS     *float64 `json:"last_s_ago,omitempty"`
}

func (h *held) lastTold() drainAnswer {
	h.mu.Lock()
	defer h.mu.Unlock()
	answer := drainAnswer{Draining: h.draining, Notices: h.notices, Last: h.notice}
	if h.notices > 0 {
		ago := time.Since(h.told).Seconds()
		answer.AgoS, answer.LastAt = &ago, h.told.UTC().Format(time.RFC3339Nano)
	}
	return answer
}

func (b *bridge) drain(r *http.Request) (any, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, mostBytes))
	if err != nil {
		return nil, err
	}
	var wanted struct {
		Drain *bool `json:"drain"`
	}
	if err := json.Unmarshal(body, &wanted); err != nil || wanted.Drain == nil {
		return nil, problemf(http.StatusBadRequest, `expected {"drain": true} or {"drain": false}`)
	}
	b.held.drain(*wanted.Drain, json.RawMessage(body))
	return b.held.lastTold(), nil
}

func crash(r *http.Request) (any, error) {
	code := 1
	if text := r.URL.Query().Get("code"); text != "" {
		var err error
		if code, err = strconv.Atoi(text); err != nil || code < 0 || code > 255 {
			return nil, problemf(http.StatusBadRequest, "code is from 0 to 255")
		}
	}
	time.AfterFunc(50*time.Millisecond, func() { os.Exit(code) }) // the answer goes out before
	return map[string]int{"code": code}, nil
}

func (b *bridge) openWebSocket(w http.ResponseWriter, r *http.Request) {
	if why := b.held.refuses(); why != "" {
		writeJSON(w, http.StatusServiceUnavailable, map[string]string{"error": why})
		return
	}
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // it has answered
	}
	defer conn.CloseNow()
	if !b.held.hold(overWebSocket, webLine{conn, websocket.StatusGoingAway}) {
		_ = conn.Close(websocket.StatusTryAgainLater, b.held.refuses())
	}
}

// open holds a gRPC session. The header tells the user that it was taken.
func (b *bridge) open(stream grpc.ServerStream) error {
	if why := b.held.refuses(); why != "" {
		return status.Error(codes.Unavailable, why)
	}
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	line := newServedLine(stream)
	taken := make(chan bool, 1)
	go func() { taken <- b.held.hold(overGRPC, line) }()
	select {
	case ok := <-taken:
		if !ok {
			return status.Error(codes.Unavailable, b.held.refuses())
		}
	case <-line.ended.Done():
	}
	return nil
}
