// Command bridge is the one program of the test image.
//
//	bridge serve     the bridge that is resized: holds WebSocket and gRPC sessions, burns CPU, holds memory on command
//	bridge sessions  its users: opens sessions, sends heartbeats, counts what was lost and how long echoes took
//	bridge lookout   reads a node's cgroup files and signals its kubelet, from a privileged pod
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

const usage = `usage: bridge serve    [--http :8080] [--grpc :9090]
       bridge sessions [--http :8080]
       bridge lookout  [--http :8080] [--root /host]`

func main() {
	// Two threads more than CPUs: frames may burn all CPUs, and the kernel then shares them with the sessions. The
	// runtime would follow the CPU limit, and with a small one leave the sessions waiting behind the frames.
	runtime.GOMAXPROCS(runtime.NumCPU() + 2)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bridge:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	address := flags.String("http", ":8080", "address of the HTTP server")
	switch args[0] {
	case "serve":
		grpcAddress := flags.String("grpc", ":9090", "address of the gRPC server")
		_ = flags.Parse(args[1:])
		return serve(ctx, *address, *grpcAddress)
	case "sessions":
		_ = flags.Parse(args[1:])
		return runUsers(ctx, *address)
	case "lookout":
		root := flags.String("root", "/host", "directory below which the node's sys/fs/cgroup is mounted")
		_ = flags.Parse(args[1:])
		return runLookout(ctx, *address, *root)
	}
	return errors.New(usage)
}

// answerHTTP serves until the context ends, then calls last, and closes what is open.
func answerHTTP(ctx context.Context, listener net.Listener, handler http.Handler, last func()) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 30 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	last()
	_ = server.Close()
	return nil
}
