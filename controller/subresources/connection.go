package subresources

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/nodevirt/nodevirt/controller/control"
	"github.com/nodevirt/nodevirt/controller/pod"
)

// connected is what a node says first when it has connected to a port or a console; package guest of the shim has
// the same.
const connected = "connected\n"

// connection is a connection to a port of a pod. Its owner closes it.
type connection struct {
	io.Reader
	io.Writer
	cancel func()
}

// Close ends the connection in both directions.
func (c *connection) Close() error {
	c.cancel()
	return nil
}

// dialer connects to the VMs in pods.
type dialer struct {
	nodes interface {
		Stream(ctx context.Context, p *corev1.Pod, options *corev1.PodExecOptions, streams remotecommand.StreamOptions) error
	}
}

// dial connects to a TCP port of a pod, by its node. What went wrong is an error, also of reading later.
func (d *dialer) dial(ctx context.Context, p *corev1.Pod, port uint16) (*connection, error) {
	c, err := d.connect(ctx, p, false, "nodevirt.io/connect", strconv.Itoa(int(port)))
	if err != nil {
		return nil, fmt.Errorf("connect to port %d: %w", port, err)
	}
	return c, nil
}

// dialConsole connects to a machine's serial console, until either ends or a newer caller comes. When it
// returns, it has ended the caller before.
func (d *dialer) dialConsole(ctx context.Context, p *corev1.Pod) (*connection, error) {
	c, err := d.connect(ctx, p, true, "nodevirt.io/console")
	if err != nil {
		return nil, fmt.Errorf("connect to the console: %w", err)
	}
	return c, nil
}

// codeInUse is the exit code of a client of a display that must not disturb another; package guest of the shim has the
// same.
const codeInUse = 75

// dialDisplay connects to a machine's display, unless another caller sees it: then the error is a [exec.CodeExitError] with
// [codeInUse].
func (d *dialer) dialDisplay(ctx context.Context, p *corev1.Pod) (*connection, error) {
	c, err := d.connect(ctx, p, false, "nodevirt.io/display")
	if err != nil {
		return nil, fmt.Errorf("connect to the display: %w", err)
	}
	return c, nil
}

// dialUSB connects to a free slot of a machine for USB devices, until either ends.
func (d *dialer) dialUSB(ctx context.Context, p *corev1.Pod) (*connection, error) {
	c, err := d.connect(ctx, p, false, "nodevirt.io/usb")
	if err != nil {
		return nil, fmt.Errorf("connect to a slot for USB devices: %w", err)
	}
	return c, nil
}

// dialVSOCK connects to a port of a machine's VSOCK, until either ends.
func (d *dialer) dialVSOCK(ctx context.Context, p *corev1.Pod, port uint32) (*connection, error) {
	c, err := d.connect(ctx, p, false, "nodevirt.io/vsock", strconv.FormatUint(uint64(port), 10))
	if err != nil {
		return nil, fmt.Errorf("connect to port %d of the VSOCK: %w", port, err)
	}
	return c, nil
}

// connect runs a command of the node that says when it is connected.
func (d *dialer) connect(ctx context.Context, p *corev1.Pod, tty bool, command ...string) (*connection, error) {
	ctx, cancel := context.WithCancel(ctx)
	input, toNode := io.Pipe()
	fromNode, output := io.Pipe()
	go func() {
		complaint := control.Bounded{Most: control.MaxComplaint}
		streams := remotecommand.StreamOptions{Stdin: input, Stdout: output, Stderr: &complaint, Tty: tty}
		if tty {
			streams.Stderr = nil // a terminal has none
		}
		err := d.nodes.Stream(ctx, p, &corev1.PodExecOptions{
			Container: pod.Container, Command: command, Stdin: true, Stdout: true, Stderr: !tty, TTY: tty,
		}, streams)
		if err != nil && len(complaint.Text) > 0 {
			err = fmt.Errorf("%w: %s", err, complaint.Text)
		}
		_ = output.CloseWithError(err) // io.EOF if it is nil
		_ = input.CloseWithError(cmp.Or(err, io.EOF))
	}()
	c := &connection{Reader: fromNode, Writer: toNode, cancel: func() {
		cancel()
		_ = toNode.Close()
		_ = fromNode.Close()
	}}
	first := make([]byte, len(connected))
	_, err := io.ReadFull(fromNode, first)
	if err == nil && string(first) != connected {
		err = errors.New("the node is of an older version")
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}
