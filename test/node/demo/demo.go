// Package demo boots a guest in a development node as a user of crictl would, step by step, and
// prints what it does. It owns the steps; other packages own the node, the guest's disk and the
// images.
package demo

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/progress"
)

// demo is what the steps find out, in their order.
type demo struct {
	node *node.Node
	out  io.Writer     // lines without a time
	log  *progress.Log // a line for what was done, with its time

	diskImage, busyboxImage string // references
	vm, client              pod
	address                 string // of the VM's pod
}

// A step names the component whose log helps most if the step fails.
type step struct {
	name, component string
	do              func(*demo, context.Context) error
}

func steps() []step {
	return []step{
		{"build and push the guest's disk", node.Registry, (*demo).pushDisk},
		{"push busybox", node.Registry, (*demo).pushBusybox},
		{"run the VM's pod", node.Shim, (*demo).runVM},
		{"run another pod", node.Containerd, (*demo).runClient},
		{"ask the guest for its page from the other pod", node.Shim, (*demo).ask},
		{"read the guest's console", node.Shim, (*demo).console},
	}
}

// Run starts the node that o says, or uses it if it is up, boots a guest in it, and writes to out
// what it does. The node is left up. A failure's error names the step and ends with the tail of the
// log that helps most.
func Run(ctx context.Context, o node.Options, out io.Writer) error {
	d := &demo{out: out, log: progress.New(out)}
	o.Log = d.log
	n, err := node.Start(ctx, o)
	if err != nil {
		return fmt.Errorf("bring up the node: %w", err)
	}
	d.node = n
	for _, s := range steps() {
		if err := s.do(d, ctx); err != nil {
			return fmt.Errorf("%s: %w\n%s", s.name, err, n.LogTail(s.component, 25))
		}
	}
	d.next()
	return nil
}

func (d *demo) pushDisk(ctx context.Context) error {
	path, err := guest.Tiny(ctx, d.node.GuestOptions())
	if err != nil {
		return err
	}
	img, err := images.RegistryDisk(path, images.DiskOptions{})
	if err != nil {
		return err
	}
	if d.diskImage, err = d.node.Push(ctx, "tiny-disk:dev", img); err != nil {
		return err
	}
	d.log.Line("the guest's disk is in the registry as %s", d.diskImage)
	return nil
}

func (d *demo) pushBusybox(ctx context.Context) (err error) {
	if d.busyboxImage, err = d.node.PushBusybox(ctx); err == nil {
		d.log.Line("busybox is in the registry as %s", d.busyboxImage)
	}
	return err
}

// ask fetches the guest's page from the other pod until it comes.
func (d *demo) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	url := "http://" + d.address + "/"
	for {
		// Not wget -T: in Debian's busybox it crashes.
		page, err := d.node.Output(ctx, "crictl", "exec", d.client.container, "timeout", "2", "wget", "-q", "-O", "-", url)
		if err == nil {
			d.log.Line("the guest answers at %s: %s", url, firstLine(page))
			return nil
		}
		select {
		case <-ctx.Done():
			console, _ := d.node.Output(context.WithoutCancel(ctx), "crictl", "logs", "--tail", "20", d.vm.container)
			return fmt.Errorf("no answer from %s: %w\n--- the guest's console\n%s", url, err, console)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// console shows the guest's first lines.
func (d *demo) console(ctx context.Context) error {
	text, err := d.node.Output(ctx, "crictl", "logs", d.vm.container)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	fmt.Fprintf(d.out, "\nThe guest's console, as crictl logs shows it:\n\n")
	for _, l := range lines[:min(len(lines), 12)] {
		fmt.Fprintf(d.out, "  | %s\n", strings.TrimRight(l, "\r"))
	}
	return nil
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
