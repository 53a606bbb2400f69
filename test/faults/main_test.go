//go:build faults

package faults

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node"
)

var (
	seed   = flag.Uint64("seed", 1, "seed of the first round; the next ones count up")
	rounds = flag.Int("rounds", 20, "number of rounds")
	calls  = flag.Int("calls", 300, "number of calls of TestFuzzCRI")
	many   = flag.Int("many", 20, "number of ordinary containers of TestMany")
	bin    = flag.String("bin", "", "folder of the node's programs, if not the checkout's bin/")
)

// The size of the shim's folder: a separate file system, that can be filled.
const (
	diskBytes  = 64 << 20
	diskInodes = 400
)

// suite is what the tests share. It is set before the first test runs.
var suite struct {
	*node.Node
	conn   *grpc.ClientConn
	cri    runtimeapi.RuntimeServiceClient
	tiny   string // image with guest.Tiny
	halt   string // image with a guest that is up at once, and ignores the power button
	steady []*steady
	served *served // the last of them
	// What libvirtd has of the served one, whenever it has all: it forgets them when it ends, and the
	// shim puts them back, under the same names, some time after it is back.
	secrets []string
}

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(node.Main(m, node.Options{Bin: *bin}, prepare))
}

// prepare gives the shim its small disk, and the node its images and steady guests.
func prepare(ctx context.Context, n *node.Node) (err error) {
	s := &suite
	s.Node = n
	options := fmt.Sprintf("mode=0711,size=%d,nr_inodes=%d", diskBytes, diskInodes)
	if _, err := s.Output(ctx, "mount", "-t", "tmpfs", "-o", options, "nodevirt", filepath.Join(n.Dir(), "nodevirt")); err != nil {
		return err
	}
	if err := s.Restart(ctx, node.Shim); err != nil {
		return err
	}
	if err := redial(); err != nil {
		return err
	}
	if err := push(ctx); err != nil {
		return err
	}
	for i := range 2 {
		g, err := newSteady(ctx, fmt.Sprintf("steady-%d", i), func(*pod) {})
		if err != nil {
			return err
		}
		s.steady = append(s.steady, g)
	}
	g, err := newSteady(ctx, "served", (*pod).overISCSI)
	if err != nil {
		return err
	}
	s.steady = append(s.steady, g)
	s.served = &served{steady: g}
	if s.secrets, err = secrets(ctx); err != nil {
		return err
	}
	return s.served.keeps(ctx)
}

func push(ctx context.Context) (err error) {
	disk, err := guest.Tiny(ctx, suite.GuestOptions())
	if err != nil {
		return err
	}
	sector := filepath.Join(suite.Dir(), "halt.img")
	if err := os.WriteFile(sector, guest.BootSector("halted", guest.Halt), 0o644); err != nil {
		return err
	}
	for _, i := range []struct {
		ref        *string
		name, path string
	}{{&suite.tiny, "tiny:1", disk}, {&suite.halt, "halt:1", sector}} {
		if *i.ref, err = pushDisk(ctx, i.name, i.path); err != nil {
			return err
		}
	}
	return nil
}

// pushDisk makes an image of a disk, and has the node pull it.
func pushDisk(ctx context.Context, name, path string) (ref string, err error) {
	img, err := images.RegistryDisk(path, images.DiskOptions{})
	if err != nil {
		return "", err
	}
	if ref, err = suite.Push(ctx, name, img); err != nil {
		return "", err
	}
	pull := &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}}
	_, err = runtimeapi.NewImageServiceClient(suite.conn).PullImage(ctx, pull)
	return ref, err
}

// redial connects to the shim again: gRPC would notice late that it is back.
func redial() (err error) {
	if suite.conn != nil {
		_ = suite.conn.Close()
	}
	if suite.conn, err = node.DialCRI(suite.ShimSocket()); err != nil {
		return err
	}
	suite.cri = runtimeapi.NewRuntimeServiceClient(suite.conn)
	return nil
}

// resume brings components up again, in the order in which a node starts them.
func resume(ctx context.Context, down ...string) error {
	for _, name := range []string{node.Containerd, node.Tgtd, node.Libvirtd, node.Shim} {
		if !slices.Contains(down, name) {
			continue
		}
		if err := suite.Resume(ctx, name); err != nil {
			return fmt.Errorf("bring %s up again: %w", name, err)
		}
	}
	return redial()
}
