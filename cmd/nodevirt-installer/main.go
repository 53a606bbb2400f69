// Command nodevirt-installer runs in a pod on each node that has the label nodevirt.io/install. It runs
// "nodevirt node install" on the node, and "nodevirt node uninstall" when the label is removed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"github.com/nodevirt/nodevirt/cmd/internal/program"
	"github.com/nodevirt/nodevirt/cmd/nodevirt-installer/internal/agent"
	"github.com/nodevirt/nodevirt/cmd/nodevirt-installer/internal/cluster"
	"github.com/nodevirt/nodevirt/cmd/nodevirt-installer/internal/host"
)

// version is set at link time; without that it is the module's, from build info.
var version string

const usage = `nodevirt-installer installs nodevirt on the node of its pod. It is the program of a DaemonSet.

Usage:
  nodevirt-installer [flags]

Flags:
`

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "nodevirt-installer:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("nodevirt-installer", flag.ContinueOnError)
	var (
		level    slog.Level
		node     = flags.String("node", os.Getenv("NODE_NAME"), "`name` of the node [$NODE_NAME]")
		programs = flags.String("programs", "/programs", "`folder` of the programs to place on the node")
		health   = flags.String("health-address", ":8081", "`address` to serve /readyz on")
	)
	flags.TextVar(&level, "log-level", slog.LevelInfo, "debug, info, warn or error")
	v := program.Version(version)
	if done, err := program.Parse(flags, usage, v, args); done || err != nil {
		return err
	}
	if *node == "" {
		return errors.New("no node: set -node or $NODE_NAME")
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	log := program.Log(level)
	config, err := rest.InClusterConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	config.UserAgent = "nodevirt-installer/" + v
	h, err := openHost(*programs)
	if err != nil {
		return err
	}
	log.Info("nodevirt-installer", "version", v, "node", *node)
	n, err := cluster.Watch(ctx, config, *node)
	if err != nil {
		return err
	}
	defer n.Close()
	a := &agent.Agent{Node: n, Host: h, Log: log, Retry: 15 * time.Second, MaxRetry: 5 * time.Minute}
	if err := serveHealth(ctx, *health, a, log); err != nil {
		return err
	}
	a.Run(ctx)
	return nil
}

// openHost opens the image's folder of programs, and the node's.
func openHost(programs string) (*host.Host, error) {
	from, err := os.OpenRoot(programs)
	if err != nil {
		return nil, fmt.Errorf("open the image's programs: %w", err)
	}
	to, err := os.OpenRoot(host.Dir)
	if err != nil {
		return nil, fmt.Errorf("open the node's folder: %w; mount it into the pod", err)
	}
	return &host.Host{Programs: from, Folder: to, Dir: host.Dir, Connect: host.Connect, Out: os.Stdout, Poll: time.Second}, nil
}

// serveHealth serves /readyz until ctx ends: the pod is ready when its node is.
func serveHealth(ctx context.Context, address string, a *agent.Agent, log *slog.Logger) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("serve /readyz: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := a.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	go func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("serve /readyz", "err", err)
		}
	}()
	return nil
}
