package main

import (
	"sync"
	"time"
)

// held is the sessions that the bridge has open, and whether it takes more.
type held struct {
	metrics *metrics

	mu       sync.Mutex
	sessions map[*session]struct{}
	draining bool
	closing  bool
	notices  int
	told     time.Time // the last notice
	notice   any       // as it came
}

// session is one user's, at the bridge. told: what it was last told of draining.
type session struct {
	protocol string
	line     line

	telling sync.Mutex
	told    bool
}

func newHeld(metrics *metrics) *held {
	return &held{metrics: metrics, sessions: map[*session]struct{}{}}
}

// refuses says why no session is taken now, or nothing.
func (h *held) refuses() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.why()
}

func (h *held) why() string {
	switch {
	case h.closing:
		return "the bridge is going away"
	case h.draining:
		return "the bridge is draining"
	}
	return ""
}

// hold echoes until the session has ended. False: it was not taken.
func (h *held) hold(protocol string, line line) bool {
	one := &session{protocol: protocol, line: line}
	if !h.add(one) {
		return false
	}
	defer h.remove(one)
	received, lost := h.metrics.messages.WithLabelValues(protocol), h.metrics.lost.WithLabelValues(protocol)
	var account ledger
	for {
		m, err := line.receive()
		if err != nil {
			return true
		}
		answer, missing := account.take(m.Seq)
		received.Inc()
		lost.Add(float64(missing))
		if line.send(answer) != nil {
			return true
		}
	}
}

func (h *held) add(one *session) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.why() != "" {
		return false
	}
	h.sessions[one] = struct{}{}
	h.metrics.sessions.WithLabelValues(one.protocol).Inc()
	return true
}

func (h *held) remove(one *session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sessions, one)
	h.metrics.sessions.WithLabelValues(one.protocol).Dec()
}

func (h *held) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.sessions)
}

// drain takes a notice, and tells the open sessions if that changes anything.
func (h *held) drain(draining bool, notice any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draining, h.notice, h.told = draining, notice, time.Now()
	h.notices++
	value := 0.0
	if draining {
		value = 1
	}
	h.metrics.draining.Set(value)
	for one := range h.sessions {
		go one.tell(h.isDraining) // a user that does not read must not hold up the others
	}
}

func (h *held) isDraining() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.draining
}

func (s *session) tell(current func() bool) {
	s.telling.Lock()
	defer s.telling.Unlock()
	if draining := current(); draining != s.told {
		s.told = draining
		_ = s.line.send(message{Draining: &draining})
	}
}

// close ends all sessions in order, and waits for that as long as is said.
func (h *held) close(longest time.Duration) {
	h.mu.Lock()
	h.closing = true
	for one := range h.sessions {
		go one.line.end()
	}
	h.mu.Unlock()
	for deadline := time.Now().Add(longest); h.count() > 0 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
}
