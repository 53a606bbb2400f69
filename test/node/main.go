package node

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/rpc"
	"os"
	"strings"

	"github.com/nodevirt/nodevirt/test/needs"
)

// Main is for a TestMain whose tests share one node: it starts the node in a new folder, has it
// prepared, runs the tests, and stops and removes it. It returns the exit code, which is not 0 either
// if the node is not [Node.Sound]. When something failed, the ends of the node's logs are in the output.
// Dir and Bound of o are set here.
func Main(tests interface{ Run() int }, o Options, prepare func(context.Context, *Node) error) int {
	needs.PartsOfAll("a development node")
	return Ended(runMain(context.Background(), tests, o, prepare))
}

func runMain(ctx context.Context, tests interface{ Run() int }, o Options, prepare func(context.Context, *Node) error) (code int, err error) {
	if o.Dir, err = os.MkdirTemp("", "nodevirt-"); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, Purge(ctx, o.Dir)) }()
	if err := os.Chmod(o.Dir, 0o711); err != nil { // QEMU's uid looks into it
		return 1, err
	}
	o.Bound = true
	n, err := Start(ctx, o)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, n.Stop(ctx)) }()
	if err := prepare(ctx, n); err != nil {
		return 1, err
	}
	return RunTests(tests, func() error { return n.Sound(ctx) }, func() {
		for _, name := range []string{Containerd, Libvirtd, Shim} {
			fmt.Println(n.LogTail(name, 40))
		}
	})
}

// Sound is asked at the end of each suite: whether the shim crashed, and, where a test left containerd
// running, whether an image was written.
func (n *Node) Sound(ctx context.Context) error {
	crash := n.shimCrash()
	s, err := n.state(Containerd)
	switch {
	case errors.Is(err, rpc.ErrShutdown):
		err = nil // the test stopped the whole node
	case err == nil && s.PID != 0 && !s.Ended:
		_, err = n.Pristine(ctx)
	}
	return errors.Join(crash, err)
}

// shimCrash returns what the shim's log has of a crash or a race.
func (n *Node) shimCrash() error {
	for line := range strings.Lines(n.LogTail(Shim, math.MaxInt)) {
		for _, word := range []string{"panic:", "fatal error:", "SIGSEGV", "SIGABRT", "WARNING: DATA RACE"} {
			if strings.HasPrefix(line, word) {
				return fmt.Errorf("in the shim's log: %s", line)
			}
		}
	}
	return nil
}
