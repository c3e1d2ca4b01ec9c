package main

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	lastEchoes = 10 * time.Second // how long they are waited for before a session is closed
	lastWord   = 5 * time.Second  // how long the server may take to close it too

	// Users' first heartbeats are at multiples of this: waking up costs a process more than a heartbeat does.
	beatGrid = 50 * time.Millisecond
)

// beat is a heartbeat whose echo has not come.
type beat struct {
	seq uint64
	at  time.Time
}

// user is one session, at the user's end.
type user struct {
	protocol string
	line     userEnd
	tally    *tally
	over     chan struct{}
	ended    func(*user)

	mu      sync.Mutex
	seq     uint64 // last sent
	waiting []beat // the oldest first
	leaving bool   // sends no more
	closed  bool   // by us
	told    bool   // of draining
}

// live sends and receives until the session is over. phase: how long until the first heartbeat.
func (u *user) live(phase, every time.Duration) {
	go u.listen()
	now := time.Now()
	due := now.Add(now.Add(phase).Truncate(beatGrid).Sub(now))
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	for {
		select {
		case <-u.over:
			return
		case <-timer.C:
		}
		if m, ok := u.next(); !ok || u.line.send(m) != nil {
			return // the listener hears why
		}
		if due = due.Add(every); due.Before(time.Now()) {
			due = time.Now()
		}
		timer.Reset(time.Until(due))
	}
}

func (u *user) next() (message, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.leaving {
		return message{}, false
	}
	u.seq++
	u.waiting = append(u.waiting, beat{u.seq, time.Now()})
	u.tally.count(func(c *counts) { c.Sent++ })
	return message{Seq: u.seq}, true
}

func (u *user) listen() {
	for {
		m, err := u.line.receive()
		if err != nil {
			u.finish(err)
			return
		}
		u.hear(m, time.Now())
	}
}

func (u *user) hear(m message, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if m.Draining != nil {
		if *m.Draining && !u.told {
			u.told = true
			u.tally.count(func(c *counts) { c.DrainingTold++ })
		}
		return
	}
	lost := 0
	for len(u.waiting) > 0 && u.waiting[0].seq < m.Seq {
		u.waiting = u.waiting[1:]
		lost++
	}
	expected := len(u.waiting) > 0 && u.waiting[0].seq == m.Seq
	var sent beat
	if expected {
		sent, u.waiting = u.waiting[0], u.waiting[1:]
	}
	switch {
	case m.Error != "":
		lost++
		u.tally.note(u.protocol, "the server says: "+m.Error)
	case !expected:
		lost++
		u.tally.note(u.protocol, fmt.Sprintf("an echo of %d, which was not waited for", m.Seq))
	default:
		u.tally.echoed(now, now.Sub(sent.at))
	}
	u.tally.count(func(c *counts) { c.Lost += lost })
}

// finish enters the end of the session.
func (u *user) finish(err error) {
	u.mu.Lock()
	u.leaving = true
	lost, closed := len(u.waiting), u.closed
	u.waiting = nil
	u.mu.Unlock()
	inOrder := errors.Is(err, io.EOF)
	u.tally.count(func(c *counts) {
		c.Lost += lost
		switch {
		case closed:
			c.ClosedByUs++
		case inOrder:
			c.ClosedByServer++
		default:
			c.Failed++
		}
	})
	if !closed && !inOrder {
		u.tally.note(u.protocol, err.Error())
	}
	u.ended(u)
	close(u.over)
	u.line.drop()
}

// outstanding is the number of heartbeats whose echo may still come.
func (u *user) outstanding() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.waiting)
}

// leave closes the session once all echoes have come, and returns when it is over.
func (u *user) leave() {
	u.mu.Lock()
	u.leaving = true
	u.mu.Unlock()
	for deadline := time.Now().Add(lastEchoes); u.outstanding() > 0 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	u.mu.Lock()
	u.closed = true
	u.mu.Unlock()
	time.AfterFunc(lastWord, u.line.drop)
	u.line.end()
	<-u.over
}
