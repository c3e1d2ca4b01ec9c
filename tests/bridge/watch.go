package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	watchEvery = 10 * time.Millisecond
	watchFor   = 5 * time.Minute
)

var watchedFiles = []string{"cpu.max", "cpu.weight", "memory.max"}

// change is one that a watch saw. Is "gone": the file is no longer there.
type change struct {
	AgoS float64 `json:"ago_s"`
	Of   string  `json:"of"`
	File string  `json:"file"`
	Was  string  `json:"was"`
	Is   string  `json:"is"`

	at time.Time
}

// watch is what was seen of a container and its pod since it began.
type watch struct {
	stop    context.CancelFunc
	mu      sync.Mutex
	changes []change
}

// watches is the latest watch of each container.
type watches struct {
	mu      sync.Mutex
	current map[string]*watch
}

// watchedFile is kept open: it is read a hundred times a second.
type watchedFile struct {
	of, name, value string
	file            *os.File
}

func (l *lookout) startWatch(r *http.Request) (any, error) {
	path, err := l.find(r)
	if err != nil {
		return nil, err
	}
	var files []*watchedFile
	for of, directory := range map[string]string{"container": path, "pod": filepath.Dir(path)} {
		for _, name := range watchedFiles {
			file, err := os.Open(filepath.Join(directory, name))
			if err != nil {
				continue // not every controller is on everywhere
			}
			one := &watchedFile{of: of, name: name, file: file}
			one.value = one.read()
			files = append(files, one)
		}
	}
	ctx, stop := context.WithTimeout(context.Background(), watchFor)
	begun := &watch{stop: stop}
	l.watches.replace(r.URL.Query().Get("container"), begun)
	go begun.run(ctx, files)
	return map[string]any{"path": path, "files": len(files), "for_s": watchFor.Seconds()}, nil
}

func (l *lookout) seen(r *http.Request) (any, error) {
	id := r.URL.Query().Get("container")
	l.watches.mu.Lock()
	found := l.watches.current[id]
	l.watches.mu.Unlock()
	if found == nil {
		return nil, problemf(http.StatusNotFound, "container %q is not watched", id)
	}
	return found.report(time.Now()), nil
}

func (w *watches) replace(id string, begun *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if before := w.current[id]; before != nil {
		before.stop()
	}
	w.current[id] = begun
}

func (w *watch) run(ctx context.Context, files []*watchedFile) {
	defer w.stop()
	for _, one := range files {
		defer one.file.Close()
	}
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, one := range files {
			if is := one.read(); is != one.value {
				w.add(change{Of: one.of, File: one.name, Was: one.value, Is: is, at: time.Now()})
				one.value = is
			}
		}
	}
}

func (w *watch) add(one change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changes = append(w.changes, one)
}

func (w *watch) report(now time.Time) []change {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := append([]change{}, w.changes...)
	for index := range found {
		found[index].AgoS = now.Sub(found[index].at).Seconds()
	}
	return found
}

func (f *watchedFile) read() string {
	var buffer [128]byte
	count, err := f.file.ReadAt(buffer[:], 0)
	if err != nil && err != io.EOF {
		return "gone"
	}
	return strings.TrimSpace(string(buffer[:count]))
}
