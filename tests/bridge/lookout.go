package main

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// containerID is what runtimes name containers by.
var containerID = regexp.MustCompile(`^[0-9a-f]{64}$`)

// cgroupFiles are shown as they are; those that are not there are left out.
var cgroupFiles = []string{
	"cpu.max", "cpu.weight", "cpuset.cpus.effective",
	"memory.current", "memory.high", "memory.low", "memory.max", "memory.min",
}

// lookout reads the node's files. tree: its cgroup directory.
type lookout struct {
	tree    string
	watches *watches
}

func runLookout(ctx context.Context, address, root string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	l := &lookout{filepath.Join(root, "sys/fs/cgroup"), &watches{current: map[string]*watch{}}}
	mux := newMux()
	mux.HandleFunc("GET /healthz", answering(healthy))
	mux.HandleFunc("GET /cgroup", answering(l.cgroup))
	mux.HandleFunc("POST /watch", answering(l.startWatch))
	mux.HandleFunc("GET /watch", answering(l.seen))
	mux.HandleFunc("GET /kubelet", answering(kubeletAge))
	mux.HandleFunc("POST /kubelet", answering(signalKubelet))
	return answerHTTP(ctx, listener, mux, func() {})
}

func (l *lookout) cgroup(r *http.Request) (any, error) {
	path, err := l.find(r)
	if err != nil {
		return nil, err
	}
	container, pod := cgroupOf(path), cgroupOf(filepath.Dir(path))
	return map[string]any{"path": path, "container": container, "pod": pod}, nil
}

// find returns the directory of the container that the request names.
func (l *lookout) find(r *http.Request) (string, error) {
	id := r.URL.Query().Get("container")
	if !containerID.MatchString(id) {
		return "", problemf(http.StatusBadRequest, "container is an id of 64 hexadecimal digits")
	}
	found := ""
	err := filepath.WalkDir(l.tree, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // cgroups come and go
		}
		if err != nil {
			return err
		}
		if entry.IsDir() && strings.Contains(entry.Name(), id) {
			found = path
			return fs.SkipAll
		}
		return nil
	})
	if err == nil && found == "" {
		err = problemf(http.StatusNotFound, "no cgroup of container %s in %s", id, l.tree)
	}
	return found, err
}

func cgroupOf(directory string) map[string]any {
	found := map[string]any{}
	for _, name := range cgroupFiles {
		if text, err := os.ReadFile(filepath.Join(directory, name)); err == nil {
			found[name] = strings.TrimSpace(string(text))
		}
	}
	if text, err := os.ReadFile(filepath.Join(directory, "cpu.stat")); err == nil {
		found["cpu.stat"] = counters(string(text))
	}
	return found
}

// counters reads lines of a name and a number.
func counters(text string) map[string]int64 {
	found := map[string]int64{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			if number, err := strconv.ParseInt(value, 10, 64); err == nil {
				found[name] = number
			}
		}
	}
	return found
}
