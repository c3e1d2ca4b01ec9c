package main

import (
	"slices"
	"sort"
	"time"
)

const samplesFor = 15 * time.Minute

// sample is one heartbeat's echo: when it came, in ms since the start, and how long it had taken.
type sample struct{ atMS, latencyUS uint32 }

// samples is the heartbeats of the last 15 minutes, the oldest first.
type samples struct {
	since time.Time
	all   []sample
}

func (s *samples) add(now time.Time, latency time.Duration) {
	at := uint32(now.Sub(s.since).Milliseconds())
	if len(s.all) == cap(s.all) {
		// before it grows: that makes room at a cost which is spread over as many samples again
		s.all = slices.Delete(s.all, 0, s.first(now, samplesFor))
	}
	s.all = append(s.all, sample{at, uint32(latency.Microseconds())})
}

// first is the index of the first sample that is no older.
func (s *samples) first(now time.Time, age time.Duration) int {
	oldest := now.Add(-age).Sub(s.since).Milliseconds()
	return sort.Search(len(s.all), func(index int) bool { return int64(s.all[index].atMS) >= oldest })
}

// heartbeats sums up echoes.
type heartbeats struct {
	Count int     `json:"count"`
	P50MS float64 `json:"p50_ms"`
	P99MS float64 `json:"p99_ms"`
	MaxMS float64 `json:"max_ms"`
}

func (s *samples) report(now time.Time, last time.Duration) heartbeats {
	window := s.all[s.first(now, min(last, samplesFor)):]
	if len(window) == 0 {
		return heartbeats{}
	}
	sorted := make([]uint32, len(window))
	for index, one := range window {
		sorted[index] = one.latencyUS
	}
	slices.Sort(sorted)
	return heartbeats{len(sorted), percentile(sorted, 50), percentile(sorted, 99), percentile(sorted, 100)}
}

// percentile is the smallest value, in ms, that so many percent of the values do not exceed.
func percentile(sorted []uint32, percent int) float64 {
	rank := (len(sorted)*percent + 99) / 100
	return float64(sorted[max(rank, 1)-1]) / 1000
}
