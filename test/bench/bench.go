package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/nodevirt/nodevirt/test/bench/report"
	"github.com/nodevirt/nodevirt/test/loopfs"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/slowlink"
)

// Options say what to measure, and how much of it.
type Options struct {
	Only   []string  // names of benches, see Names; those of make bench if empty
	Rounds int       // of each comparison of starts
	Calls  int       // of each kind that is passed on
	VMs    int       // of the memory bench
	Burst  int       // guests that boot at once
	Forks  int       // guests from each checkpoint, after the first
	Log    io.Writer // a line for each step
}

// Default is what `make bench` measures.
func Default() Options {
	return Options{Rounds: 15, Calls: 500, VMs: 20, Burst: 20, Forks: 4, Log: io.Discard}
}

// bench measures one section of the report.
type bench struct {
	name, about string
	run         func(*rig, context.Context) (report.Section, error)
	shim        func(map[string]any) // changes the shim's configuration; none if nil
	fs          string               // a separate file system for the node; the host's if empty
	images      source               // how the node gets its images
}

// source is how much of an image a node fetches before a VM starts, and by which link. By default, it fetches all of
// it over loopback.
type source struct {
	lazy node.Lazy
	link slowlink.Link
}

// benches are in the order of the report.
func benches() []bench {
	return []bench{
		{name: "start", about: "a VM's start, against the same domain through libvirt alone", run: (*rig).start, shim: debug},
		{name: "size", about: "a VM's start, by the size of its disk", run: (*rig).size},
		{name: "disk", about: "an image's disk made ready, against qemu-img alone", run: (*rig).disk},
		{name: "clone", about: "the same with reflinks, for an image's first VM and its second", run: (*rig).clone, fs: loopfs.XFS},
		{name: "second", about: "the disk of an image's second VM", run: (*rig).second, shim: debug},
		{name: "again", about: "the same with reflinks", run: (*rig).second, shim: debug, fs: loopfs.XFS},
		{name: "blockio", about: "reads of a VM's disk by QEMU's block layer, against a plain file", run: (*rig).blockIO},
		{name: "iscsi", about: "the same over iSCSI, against a plain tgtd", run: (*rig).blockISCSI},
		{name: "iscsiclone", about: "the same with reflinks", run: (*rig).blockISCSI, fs: loopfs.XFS},
		{name: "iofile", about: "a guest's disk of mode file, against QEMU alone", run: (*rig).ioFile},
		{name: "ioraw", about: "a guest's disk of mode raw, against QEMU alone", run: (*rig).ioRaw},
		{name: "ioiscsi", about: "a guest's disk over iSCSI, against QEMU alone with a plain tgtd", run: (*rig).ioISCSI},
		{name: "ioclone", about: "the same with reflinks", run: (*rig).ioISCSI, fs: loopfs.XFS},
		{name: "iopvc", about: "a guest's disk.img on a PVC, against QEMU alone", run: ioPVC(false, false)},
		{name: "iopvct", about: "the same with an I/O thread", run: ioPVC(false, true)},
		{name: "ioblock", about: "a guest's block device of a PVC, against QEMU alone", run: ioPVC(true, false)},
		{name: "ioblockt", about: "the same with an I/O thread", run: ioPVC(true, true)},
		{name: "origin", about: "an image's disk written to a new PVC, against qemu-img alone", run: (*rig).origin},
		{name: "cold", about: "from the registry to a running guest, by phase", run: (*rig).cold},
		{name: "lazy", about: "the same of an image that is fetched while its guest boots, against a warm node", run: lazyImage(coldSize, 3, lazyGoal), images: source{lazy: node.InBackground}},
		{name: "stored", about: "bytes stored for VMs of one image, against copies", run: (*rig).stored, fs: loopfs.XFS},
		{name: "calls", about: "calls that are passed on, against containerd", run: (*rig).calls},
		{name: "pod", about: "an ordinary pod's start, against containerd", run: (*rig).pod},
		{name: "pods", about: "a burst of ordinary pods, against containerd", run: (*rig).pods},
		{name: "memory", about: "memory beside QEMU", run: (*rig).memory},
		{name: "fork", about: "guests from the checkpoint of one that has booted, against its boot", run: (*rig).fork, shim: debug},
		{name: "freeze", about: "how long a guest's file system is frozen for a copy of a disk", run: (*rig).freeze, fs: loopfs.XFS},
		{name: "burst", about: "guests that boot at once, and what the shim costs when they idle", run: (*rig).burst},
		{name: "windows", about: "an idle guest as Windows needs it, against one without its timers and enlightenments", run: (*rig).windows},
	}
}

// named are benches that run only if they are chosen: make bench does not install what they need, or they take long.
func named() []bench {
	lazy := source{lazy: node.InBackground}
	farLazy := source{lazy: node.InBackground, link: farLink()}
	return []bench{
		{name: "coldfar", about: "cold, with a registry behind 20 ms and 200 Mbit/s", run: (*rig).cold, images: source{link: farLink()}},
		{name: "lazyfar", about: "lazy, with a registry behind 20 ms and 200 Mbit/s", run: lazyImage(coldSize, 3, lazyGoal), images: farLazy},
		{name: "lazylarge", about: "lazy, with an image of 10 GiB; it needs 32 GiB of disk", run: lazyImage(largeSize, 1, lazyLargeGoal), images: lazy},
		{name: "lazylargefar", about: "both", run: lazyImage(largeSize, 1, lazyLargeGoal), images: farLazy},
		{name: "iorbd", about: "a guest's disk on RBD, against QEMU alone; run make bench-ceph", run: (*rig).ioRBD, shim: onCeph},
	}
}

// debug makes the shim log a start's phases.
func debug(c map[string]any) { c["log_level"] = "debug" }

// Names are the benches' names, each with what it measures.
func Names() [][2]string {
	var all [][2]string
	for _, b := range append(benches(), named()...) {
		all = append(all, [2]string{b.name, b.about})
	}
	return all
}

func (o Options) chosen() ([]bench, error) {
	if len(o.Only) == 0 {
		return benches(), nil
	}
	all := append(benches(), named()...)
	for _, name := range o.Only {
		if !slices.ContainsFunc(all, func(b bench) bool { return b.name == name }) {
			return nil, fmt.Errorf("there is no bench %q: see -help", name)
		}
	}
	return slices.DeleteFunc(all, func(b bench) bool { return !slices.Contains(o.Only, b.name) }), nil
}

// Run starts a node, measures, and removes the node. The programs must be built. With an error comes
// what was measured before.
func Run(ctx context.Context, o Options) (r report.Report, err error) {
	chosen, err := o.chosen()
	if err != nil {
		return r, err
	}
	r.Began, r.Machine = time.Now(), report.ThisMachine(ctx)
	for _, b := range chosen {
		s, err := o.runOne(ctx, b)
		if err != nil {
			return r, fmt.Errorf("bench %s: %w", b.name, err)
		}
		r.Sections = append(r.Sections, s)
	}
	r.Seconds = time.Since(r.Began).Seconds()
	return r, nil
}

// runOne gives each bench a new node: what one leaves in the daemons' memory is no other's.
func (o Options) runOne(ctx context.Context, b bench) (s report.Section, err error) {
	begun := time.Now()
	top, unmount, err := mounted(b.fs)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, unmount()) }()
	dir, err := os.MkdirTemp(top, "nodevirt-")
	if err != nil {
		return s, err
	}
	// A run that is given up still takes its node down.
	end := context.WithoutCancel(ctx)
	defer func() { err = errors.Join(err, node.Purge(end, dir)) }()
	if err := os.Chmod(dir, 0o711); err != nil { // QEMU's uid looks into it
		return s, err
	}
	n, err := node.Start(ctx, node.Options{
		Dir: dir, Bound: true,
		ShimConfig: b.shim, Lazy: b.images.lazy, Link: b.images.link,
	})
	if n != nil {
		defer func() { err = errors.Join(err, n.Stop(end)) }()
	}
	if err != nil {
		return s, err
	}
	rig, err := newRig(ctx, n, o, b)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, rig.close()) }()
	if s, err = b.run(rig, ctx); err != nil {
		return s, fmt.Errorf("%w\n%s", err, n.LogTail(node.Shim, 20))
	}
	fmt.Fprintf(o.Log, "%-10s %5.1f s  %s\n", b.name, time.Since(begun).Seconds(), b.about)
	return s, nil
}

// fsSize is that of a file system of a bench's own, in bytes; its file is sparse.
const fsSize = 16 << 30

// mounted returns a folder for a node: on a separate file system, if one is named.
func mounted(kind string) (top string, unmount func() error, err error) {
	if kind == "" {
		return "", func() error { return nil }, nil
	}
	if top, err = os.MkdirTemp("", "nv"); err != nil {
		return "", nil, err
	}
	fs, err := loopfs.New(os.TempDir(), kind, fsSize)
	if err != nil {
		return "", nil, errors.Join(err, os.Remove(top))
	}
	unmount = func() error { return errors.Join(loopfs.Detach(top), fs.Close(), os.Remove(top)) }
	if err := errors.Join(fs.Attach(top), os.Chmod(top, 0o711)); err != nil {
		return "", nil, errors.Join(err, fs.Close(), os.Remove(top))
	}
	return top, unmount, nil
}
