package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// node writes a cgroup tree of one pod with one container, and returns their directories and the container's id.
func node(t *testing.T) (l *lookout, pod, container, id string) {
	id = strings.Repeat("0123456789abcdef", 4)
	root := t.TempDir()
	pod = filepath.Join(root, "kubepods.slice", "kubepods-pod1.slice")
	container = filepath.Join(pod, "cri-containerd-"+id+".scope")
	if err := os.MkdirAll(container, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, pod, "cpu.max", "max 100000")
	write(t, container, "cpu.max", "30000 100000")
	write(t, container, "cpu.stat", "usage_usec 12\nnr_throttled 3")
	return &lookout{root, &watches{current: map[string]*watch{}}}, pod, container, id
}

func write(t *testing.T, directory, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(directory, name), []byte(text+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

func asking(id string) *http.Request { return httptest.NewRequest("GET", "/?container="+id, nil) }

func TestLookoutReadsTheContainerAndItsPod(t *testing.T) {
	l, _, container, id := node(t)
	found, err := l.cgroup(asking(id))
	if err != nil {
		t.Fatal(err)
	}
	answer := found.(map[string]any)
	of := func(who string) map[string]any { return answer[who].(map[string]any) }
	if answer["path"] != container || of("container")["cpu.max"] != "30000 100000" || of("pod")["cpu.max"] != "max 100000" {
		t.Errorf("found %v", answer)
	}
	if stat := of("container")["cpu.stat"].(map[string]int64); stat["nr_throttled"] != 3 {
		t.Errorf("found %v", stat)
	}
	if _, err := l.cgroup(asking(strings.Repeat("f", 64))); err == nil || err.(problem).status != http.StatusNotFound {
		t.Errorf("another container: %v", err)
	}
}

func TestWatchSeesChanges(t *testing.T) {
	l, pod, _, id := node(t)
	if _, err := l.startWatch(asking(id)); err != nil {
		t.Fatal(err)
	}
	defer l.watches.current[id].stop()
	write(t, pod, "cpu.max", "50000 100000")
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(watchEvery) {
		answer, err := l.seen(asking(id))
		if err != nil {
			t.Fatal(err)
		}
		// a file that is written may be seen empty in between, which one of a cgroup is not
		changes := answer.([]change)
		if len(changes) > 0 && changes[len(changes)-1].Is == "50000 100000" {
			if first := changes[0]; first.Of != "pod" || first.File != "cpu.max" || first.Was != "max 100000" {
				t.Errorf("saw %+v", changes)
			}
			return
		}
	}
	t.Error("saw nothing")
}
