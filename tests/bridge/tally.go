package main

import (
	"sync"
	"time"
)

const mostErrors = 20

// tally is what happened to all users' sessions since the start.
type tally struct {
	mu      sync.Mutex
	samples samples
	errors  []failure // the latest
	counts  counts
}

// counts: each session that was opened is open, or was closed by us or by the server in order, or has failed. Refused
// are those that did not open.
type counts struct {
	Opened         map[string]int `json:"opened"`
	Refused        int            `json:"refused"`
	ClosedByUs     int            `json:"closed_by_us"`
	ClosedByServer int            `json:"closed_by_server"`
	Failed         int            `json:"failed"`
	Sent           int            `json:"sent"`
	Echoed         int            `json:"echoed"`
	Lost           int            `json:"lost"`
	Reconnects     int            `json:"reconnects"` // always 0: users do not come back by themselves
	DrainingTold   int            `json:"draining_told"`
}

// failure is an end out of order, or an answer that was not the one expected.
type failure struct {
	AgoS     float64 `json:"at_s_ago"`
	Protocol string  `json:"protocol"`
	Text     string  `json:"text"`

	at time.Time
}

func newTally() *tally {
	return &tally{samples: samples{since: time.Now()}, counts: counts{Opened: zeroes()}}
}

func zeroes() map[string]int { return map[string]int{overWebSocket: 0, overGRPC: 0} }

func (t *tally) count(change func(*counts)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.counts)
}

func (t *tally) echoed(now time.Time, latency time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.Echoed++
	t.samples.add(now, latency)
}

func (t *tally) note(protocol, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.errors) == mostErrors {
		t.errors = t.errors[1:]
	}
	t.errors = append(t.errors, failure{Protocol: protocol, Text: text, at: time.Now()})
}

// report: Open and Outstanding are of now, Heartbeats of the window, everything else since the start.
type report struct {
	counts
	Open        map[string]int `json:"open"`
	Outstanding int            `json:"outstanding"` // sent and neither echoed nor lost yet
	Errors      []failure      `json:"errors"`
	Heartbeats  heartbeats     `json:"heartbeats"`
}

func (t *tally) report(last time.Duration) report {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	errors := append([]failure{}, t.errors...)
	for index := range errors {
		errors[index].AgoS = now.Sub(errors[index].at).Seconds()
	}
	counts := t.counts
	counts.Opened = zeroes()
	for protocol, number := range t.counts.Opened {
		counts.Opened[protocol] = number
	}
	return report{counts: counts, Open: zeroes(), Errors: errors, Heartbeats: t.samples.report(now, last)}
}
