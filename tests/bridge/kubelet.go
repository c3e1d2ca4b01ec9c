package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// clockTicks are those of /proc, per second: the same on every Linux that Go runs on.
const clockTicks = 100

var signals = map[string]syscall.Signal{
	"TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL, "STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT,
}

func kubeletAge(*http.Request) (any, error) {
	pid, err := kubelet()
	if err != nil {
		return nil, err
	}
	age, err := ageOf(pid)
	if err != nil {
		return nil, err
	}
	return map[string]any{"pid": pid, "age_s": age}, nil
}

func signalKubelet(r *http.Request) (any, error) {
	name := r.URL.Query().Get("signal")
	signal, ok := signals[name]
	if !ok {
		return nil, problemf(http.StatusBadRequest, "signal is TERM, KILL, STOP or CONT")
	}
	pid, err := kubelet()
	if err != nil {
		return nil, err
	}
	if err := syscall.Kill(pid, signal); err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	return map[string]int{"pid": pid}, nil
}

// kubelet returns the process that is called so.
func kubelet() (int, error) {
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		if comm, err := os.ReadFile(name); err == nil && string(comm) == "kubelet\n" {
			return strconv.Atoi(filepath.Base(filepath.Dir(name)))
		}
	}
	return 0, problemf(http.StatusNotFound, "no process is called kubelet")
}

// ageOf says for how many seconds a process has been running.
func ageOf(pid int) (float64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	uptime, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0, err
	}
	// fields from the third on stand after the name, which may contain anything; the 22nd is the start in ticks
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	started, err := strconv.ParseFloat(fields[22-3], 64)
	if err != nil {
		return 0, err
	}
	up, err := strconv.ParseFloat(strings.Fields(string(uptime))[0], 64)
	if err != nil {
		return 0, err
	}
	return up - started/clockTicks, nil
}
