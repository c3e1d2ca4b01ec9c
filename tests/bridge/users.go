package main

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	atOnce    = 20 // sessions that are being opened or closed
	openFor   = time.Minute
	mostUsers = 10_000
)

// users are all sessions of this process, the oldest first.
type users struct {
	tally *tally
	mu    sync.Mutex
	open  []*user
}

// opening is a request for sessions, a heartbeat every EveryMS milliseconds in each.
type opening struct {
	Target    string `json:"target"`
	HTTPPort  int    `json:"http_port"`
	GRPCPort  int    `json:"grpc_port"`
	WebSocket int    `json:"websocket"`
	GRPC      int    `json:"grpc"`
	EveryMS   int    `json:"every_ms"`
}

func runUsers(ctx context.Context, address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	all := &users{tally: newTally()}
	mux := newMux()
	mux.HandleFunc("GET /healthz", answering(healthy))
	mux.HandleFunc("POST /open", answering(all.openSome))
	mux.HandleFunc("POST /close", answering(all.closeSome))
	mux.HandleFunc("GET /report", answering(all.report))
	return answerHTTP(ctx, listener, mux, all.leave)
}

func (u *users) openSome(r *http.Request) (any, error) {
	wanted := opening{HTTPPort: 8080, GRPCPort: 9090, EveryMS: 1000}
	if err := readJSON(r, &wanted); err != nil {
		return nil, err
	}
	number := wanted.WebSocket + wanted.GRPC
	if wanted.Target == "" || wanted.WebSocket < 0 || wanted.GRPC < 0 || number > mostUsers || wanted.EveryMS < 1 {
		return nil, problemf(http.StatusBadRequest,
			"expected a target, websocket and grpc of together at most %d, and every_ms from 1", mostUsers)
	}
	every := time.Duration(wanted.EveryMS) * time.Millisecond
	var first atomic.Pointer[error]
	ctx, cancel := context.WithTimeout(r.Context(), openFor)
	defer cancel()
	inTurn(number, func(index int) {
		if first.Load() != nil {
			return
		}
		phase := every * time.Duration(index) / time.Duration(number)
		if err := u.openOne(ctx, wanted, index < wanted.WebSocket, phase, every); err != nil {
			u.tally.count(func(c *counts) { c.Refused++ })
			first.CompareAndSwap(nil, &err)
		}
	})
	if err := first.Load(); err != nil {
		return nil, problemf(http.StatusBadGateway, "%v", *err)
	}
	return map[string]any{"open": u.numbers()}, nil
}

func (u *users) openOne(ctx context.Context, wanted opening, web bool, phase, every time.Duration) error {
	protocol, dial, port := overGRPC, dialGRPC, wanted.GRPCPort
	if web {
		protocol, dial, port = overWebSocket, dialWebSocket, wanted.HTTPPort
	}
	line, err := dial(ctx, wanted.Target, port)
	if err != nil {
		return fmt.Errorf("%s: %w", protocol, err)
	}
	one := &user{protocol: protocol, line: line, tally: u.tally, over: make(chan struct{}), ended: u.remove}
	u.mu.Lock()
	u.open = append(u.open, one)
	u.mu.Unlock()
	u.tally.count(func(c *counts) { c.Opened[protocol]++ })
	go one.live(phase, every)
	return nil
}

// inTurn does something with each index, a bounded number at once, and returns when all is done.
func inTurn(number int, do func(index int)) {
	var all sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for index := range number {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			do(index)
		})
	}
	all.Wait()
}

func (u *users) remove(one *user) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.open = slices.DeleteFunc(u.open, func(other *user) bool { return other == one })
}

func (u *users) current() []*user {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.open)
}

func (u *users) numbers() map[string]int {
	numbers := zeroes()
	for _, one := range u.current() {
		numbers[one.protocol]++
	}
	return numbers
}

// leave closes all sessions in order, as far as that is possible within a second.
func (u *users) leave() {
	var all sync.WaitGroup
	for _, one := range u.current() {
		all.Go(one.leave)
	}
	left := make(chan struct{})
	go func() { all.Wait(); close(left) }()
	select {
	case <-left:
	case <-time.After(800 * time.Millisecond):
	}
}

// closeSome closes the newest sessions, all if the request has no count.
func (u *users) closeSome(r *http.Request) (any, error) {
	wanted := struct {
		Count int `json:"count"`
	}{math.MaxInt}
	if err := readJSON(r, &wanted); err != nil {
		return nil, err
	}
	if wanted.Count < 0 {
		return nil, problemf(http.StatusBadRequest, "count is a number of sessions")
	}
	leaving := u.current()
	slices.Reverse(leaving)
	leaving = leaving[:min(wanted.Count, len(leaving))]
	inTurn(len(leaving), func(index int) { leaving[index].leave() })
	return map[string]any{"closed": len(leaving), "open": u.numbers()}, nil
}

func (u *users) report(r *http.Request) (any, error) {
	last := samplesFor
	if text := r.URL.Query().Get("last"); text != "" {
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil || !(seconds > 0 && seconds < 1e6) {
			return nil, problemf(http.StatusBadRequest, "last is a number of seconds")
		}
		last = time.Duration(seconds * float64(time.Second))
	}
	found := u.tally.report(last)
	for _, one := range u.current() {
		found.Open[one.protocol]++
		found.Outstanding += one.outstanding()
	}
	return found, nil
}
