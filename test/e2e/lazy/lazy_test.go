package lazy

import (
	"bytes"
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

// TestAGuestBootsFromAPartOfItsImage has a node fetch nothing but what is read.
func TestAGuestBootsFromAPartOfItsImage(t *testing.T) {
	n := start(t, node.OnDemand, "10.101.0.0/16")
	d := newDisk(t, n)
	d.pull()
	if got := d.fetched(); got > d.blob/20 {
		t.Errorf("the pull has fetched %d of %d bytes", got, d.blob)
	}
	v := d.boot("guest")
	booted := d.fetched()
	if booted > d.blob/2 {
		t.Errorf("the boot has fetched %d of %d bytes", booted, d.blob)
	}
	t.Logf("the guest has booted from %d of %d bytes", booted, d.blob)
	v.reads(10)
	if d.fetched() <= booted {
		t.Error("the guest has read what nothing has fetched")
	}

	assert.NilError(t, n.Kill(t.Context(), node.Registry, syscall.SIGTERM))
	v.reads(10) // it is here
	v.readsLater(70)
	v.stopped()
	assert.NilError(t, n.Resume(t.Context(), node.Registry))
	v.readsNow(70)

	// A chunk that is not what the image's table of contents says does not reach the guest.
	d.tamper(40)
	v.readsLater(40)
	v.stopped()
	v.remove()
}

// TestTheRestComesInTheBackground: the registry is not needed once all is here.
func TestTheRestComesInTheBackground(t *testing.T) {
	n := start(t, node.InBackground, "10.102.0.0/16")
	d := newDisk(t, n)
	d.pull()
	v := d.boot("first")
	wait.Until(t, "all is fetched", func() bool { return d.fetched() == d.blob })
	assert.NilError(t, n.Kill(t.Context(), node.Registry, syscall.SIGTERM))
	v.reads(20)
	v.reads(90)
	v.remove()
	before, err := n.Settled(t.Context())
	assert.NilError(t, err)
	v = d.boot("second")
	v.reads(50)
	v.remove()
	assert.NilError(t, n.SameAgain(t.Context(), before, time.Minute))
	assert.NilError(t, n.Resume(t.Context(), node.Registry))
}

// TestAnEndDoesNotWaitForTheRegistry removes a VM whose guest reads what does not come.
func TestAnEndDoesNotWaitForTheRegistry(t *testing.T) {
	n := start(t, node.OnDemand, "10.103.0.0/16")
	d := newDisk(t, n)
	d.pull()
	v := d.boot("guest")
	signalRegistry(t, n, syscall.SIGSTOP)
	v.readsLater(60)
	v.remove()
	signalRegistry(t, n, syscall.SIGCONT)
}

func signalRegistry(t *testing.T, n *node.Node, sig syscall.Signal) {
	t.Helper()
	all, err := n.Components()
	assert.NilError(t, err)
	for _, s := range all {
		if s.Name == node.Registry && !s.Ended {
			_, err := n.Output(t.Context(), "kill", "-"+strconv.Itoa(int(sig)), strconv.Itoa(s.PID))
			assert.NilError(t, err)
		}
	}
}

func start(t *testing.T, lazy node.Lazy, subnet string) *node.Node {
	t.Helper()
	return node.ForTest(t, node.Options{Lazy: lazy, Subnet: netip.MustParsePrefix(subnet)})
}

// tamper changes the blob in the registry, at a percentage of the rest.
func (d *disk) tamper(percent int64) {
	d.t.Helper()
	path := filepath.Join(d.n.Dir(), "registry/blobs", strings.ReplaceAll(d.digest, ":", "-"))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	assert.NilError(d.t, err)
	defer f.Close()
	// Some chunks around the one that is read. The rest does not compress, and is last in both.
	wrong := bytes.Repeat([]byte{'x'}, 8*mebibyte)
	at := d.blob - (d.size - d.block(percent)*mebibyte) - int64(len(wrong))/2
	_, err = f.WriteAt(wrong, at)
	assert.NilError(d.t, err)
}

// cleanup is a context for what is removed after a test.
func cleanup(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(context.WithoutCancel(t.Context()), wait.Patience)
}
