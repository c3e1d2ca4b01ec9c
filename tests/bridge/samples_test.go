package main

import (
	"testing"
	"time"
)

func TestSamplesSumUpAWindow(t *testing.T) {
	start := time.Now()
	s := samples{since: start}
	for second := 1; second <= 100; second++ {
		s.add(start.Add(time.Duration(second)*time.Second), time.Duration(second)*time.Millisecond)
	}
	now := start.Add(100 * time.Second)
	if got, want := s.report(now, time.Hour), (heartbeats{100, 50, 99, 100}); got != want {
		t.Errorf("all: %+v, expected %+v", got, want)
	}
	if got, want := s.report(now, 9*time.Second), (heartbeats{10, 95, 100, 100}); got != want {
		t.Errorf("last 9 s: %+v, expected %+v", got, want)
	}
	if got := s.report(now.Add(time.Minute), time.Second); got != (heartbeats{}) {
		t.Errorf("nothing lately: %+v", got)
	}
}

func TestSamplesForgetWhatIsOld(t *testing.T) {
	start := time.Now()
	s := samples{since: start}
	for second := range 100_000 {
		s.add(start.Add(time.Duration(second)*time.Second), time.Millisecond)
	}
	if kept := len(s.all); kept < 900 || kept > 4096 {
		t.Errorf("keeps %d samples of one a second", kept)
	}
	if got := s.report(start.Add(99_999*time.Second), samplesFor).Count; got != 901 {
		t.Errorf("%d in 15 minutes", got)
	}
}
