package main

import (
	"fmt"
	"math"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	mib       = 1 << 20
	mostCores = 256
	mostMiB   = 1 << 20
)

// load is what the bridge was told to use: CPU by its frames, and memory that it holds.
type load struct {
	cores atomic.Uint64 // bits of a float64, read by every frame
	held  atomic.Int64  // MiB

	changing sync.Mutex
	blocks   [][]byte // of 1 MiB each
}

// loadAnswer is the load in force, in cores and MiB.
type loadAnswer struct {
	CPU       float64 `json:"cpu"`
	MemoryMiB int     `json:"memory_mib"`
}

func (l *load) demand() float64 { return math.Float64frombits(l.cores.Load()) }

func (l *load) now() loadAnswer { return loadAnswer{l.demand(), int(l.held.Load())} }

// set makes what the request names the load, and returns once the memory is held or given back.
func (l *load) set(r *http.Request) (any, error) {
	l.changing.Lock()
	defer l.changing.Unlock()
	wanted := l.now()
	if err := readJSON(r, &wanted); err != nil {
		return nil, err
	}
	if !(wanted.CPU >= 0 && wanted.CPU <= mostCores) {
		return nil, problemf(http.StatusBadRequest, "cpu is cores, from 0 to %d", mostCores)
	}
	if wanted.MemoryMiB < 0 || wanted.MemoryMiB > mostMiB {
		return nil, problemf(http.StatusBadRequest, "memory_mib is from 0 to %d", mostMiB)
	}
	l.cores.Store(math.Float64bits(wanted.CPU))
	if err := l.hold(wanted.MemoryMiB); err != nil {
		return nil, err
	}
	return l.now(), nil
}

// hold grows or shrinks what is held MiB by MiB, so that a memory limit is met on the way.
func (l *load) hold(wanted int) error {
	shrinks := wanted < len(l.blocks)
	for len(l.blocks) < wanted {
		block, err := newBlock()
		if err != nil {
			return fmt.Errorf("memory: %w", err)
		}
		l.blocks = append(l.blocks, block)
		l.held.Store(int64(len(l.blocks)))
	}
	for len(l.blocks) > wanted {
		last := len(l.blocks) - 1
		if err := unix.Munmap(l.blocks[last]); err != nil {
			return fmt.Errorf("memory: %w", err)
		}
		l.blocks = l.blocks[:last]
		l.held.Store(int64(last))
	}
	if shrinks {
		debug.FreeOSMemory()
	}
	return nil
}

// newBlock is 1 MiB outside the Go heap, every page of it resident.
func newBlock() ([]byte, error) {
	block, err := unix.Mmap(-1, 0, mib, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	// A huge page that is unmapped in part stays charged to the cgroup for a while. Kernels without them say EINVAL.
	_ = unix.Madvise(block, unix.MADV_NOHUGEPAGE)
	for at := 0; at < mib; at += os.Getpagesize() {
		block[at] = 1
	}
	return block, nil
}
