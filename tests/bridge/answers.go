package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

const mostBytes = 64 << 10 // of a request's body

// problem is an error with the HTTP status it is answered with.
type problem struct {
	status int
	text   string
}

func (p problem) Error() string { return p.text }

func problemf(status int, format string, args ...any) error {
	return problem{status, fmt.Sprintf(format, args...)}
}

// answering makes a handler of a function: its value is answered as JSON, its error as {"error": ...}.
func answering(answer func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		value, err := answer(r)
		status := http.StatusOK
		if err != nil {
			status = http.StatusInternalServerError
			var known problem
			if errors.As(err, &known) {
				status = known.status
			}
			value = map[string]string{"error": err.Error()}
		}
		writeJSON(w, status, value)
	}
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}

// newMux answers every path that is not registered with a JSON 404.
func newMux() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("/", answering(func(r *http.Request) (any, error) {
		return nil, problemf(http.StatusNotFound, "no %s %s here", r.Method, r.URL.Path)
	}))
	return mux
}

func healthy(*http.Request) (any, error) { return map[string]string{"status": "ok"}, nil }

// readJSON fills value from the body; what the body does not name stays. An empty body is an empty object.
func readJSON(r *http.Request, value any) error {
	decoder := json.NewDecoder(io.LimitReader(r.Body, mostBytes))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(value); err != nil && !errors.Is(err, io.EOF) {
		return problemf(http.StatusBadRequest, "the body cannot be read: %v", err)
	}
	return nil
}
