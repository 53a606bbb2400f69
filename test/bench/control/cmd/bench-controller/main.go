// Command bench-controller measures the controller; see package control.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/nodevirt/nodevirt/test/bench/control"
	"github.com/nodevirt/nodevirt/test/commands"
)

func main() { os.Exit(commands.Interruptible("bench-controller", run)) }

func run(ctx context.Context) error {
	clients := flag.Int("clients", 16, "`number` of clients that create instances at once")
	flag.Parse()
	checkout, err := os.Getwd()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench-controller-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	f, err := control.Run(ctx, control.Options{Checkout: checkout, Dir: dir, Sizes: []int{100, 1000}, Clients: *clients})
	if err != nil {
		return err
	}
	const mib = 1 << 20
	fmt.Printf("idle: RSS %d MiB, PSS %d MiB\n", f.Idle.RSS/mib, f.Idle.PSS/mib)
	for _, b := range f.Bursts {
		fmt.Printf("%d instances: applied in %.1f s, pods made in %.1f s, %.0f a second; %.1f requests and %.1f writes each; RSS %d MiB\n",
			b.Instances, b.Applied.Seconds(), b.Made.Seconds(), b.Rate(),
			float64(b.Requests)/float64(b.Instances), float64(b.Writes)/float64(b.Instances), b.Memory.RSS/mib)
	}
	return nil
}
