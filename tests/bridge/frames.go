package main

import (
	"context"
	"math"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const framePeriod = 100 * time.Millisecond

// runFrames makes 10 frames a second until the context ends. A frame of a demand of n cores does n * 0.1 CPU-seconds
// of work. Its time is from when it was due until its work is done. A frame that ends late is followed at once, and
// what was missed meanwhile is not made up for.
func runFrames(ctx context.Context, demand func() float64, done func(time.Duration)) {
	timer := time.NewTimer(framePeriod)
	defer timer.Stop()
	due := time.Now().Add(framePeriod)
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		work(demand())
		now := time.Now()
		done(now.Sub(due))
		if due = due.Add(framePeriod); due.Before(now) {
			due = now
		}
		timer.Reset(due.Sub(now))
	}
}

// work does one frame's work, on as many threads as it takes cores, but no more than there are CPUs.
func work(cores float64) {
	if cores <= 0 {
		return
	}
	threads := min(int(math.Ceil(cores)), runtime.NumCPU())
	each := time.Duration(cores * float64(framePeriod) / float64(threads))
	var all sync.WaitGroup
	for range threads {
		all.Go(func() { burn(each) })
	}
	all.Wait()
}

// burn uses that much CPU time of one thread: throttling makes it longer, not less.
func burn(wanted time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for end := threadTime() + wanted; threadTime() < end; {
		spin()
	}
}

func threadTime() time.Duration {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &at); err != nil {
		panic(err)
	}
	return time.Duration(at.Nano())
}

//go:noinline
func spin() uint64 {
	// some 20 us of a real CPU: the clock is a system call and should not be most of the work
	state := uint64(1)
	for range 20_000 {
		state = state*6364136223846793005 + 1442695040888963407
	}
	return state
}
