package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/nodevirt/nodevirt/test/bench/report"
)

// transfer is what goes to a guest and comes back, in bytes.
const transfer = 8 << 20

// Of the guest on a bare tap.
const (
	bareTap = "bare0"
	bareIP  = "10.200.0.2"
)

// network compares the time that bytes take from the node to a guest in a pod, and back, with that
// to a guest of the same QEMU on a tap in the node, which nothing stands before.
func (r *rig) network(ctx context.Context) (s report.Section, err error) {
	image, disk, err := r.tiny(ctx)
	if err != nil {
		return s, err
	}
	stop, err := r.bareGuest(ctx, disk)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	sides := []side{r.echoSide("bare tap", bareIP)}
	for _, binding := range []string{"bridge", "masquerade"} {
		ip, err := r.boundGuest(ctx, binding, image)
		if err != nil {
			return s, err
		}
		sides = append(sides, r.echoSide(binding, ip))
	}
	for _, side := range sides {
		if err := side.tidy(ctx); err != nil { // it waits until the guest is up
			return s, err
		}
	}
	times, err := turns(ctx, r.Rounds, sides...)
	if err != nil {
		return s, err
	}
	s.Title = "8 MiB from the node to a guest and back, against a guest on a bare tap"
	for _, measured := range times[1:] {
		s.Rows = append(s.Rows, report.Row{
			Name: measured.Of, Unit: "ms", Kind: report.Ratio, Goal: 1.2, Baseline: times[0], Measured: measured,
		})
	}
	return s, nil
}

// boundGuest boots a guest in a pod of its own, and returns where it is.
func (r *rig) boundGuest(ctx context.Context, binding, image string) (ip string, err error) {
	config, err := r.podConfig(binding)
	if err != nil {
		return "", err
	}
	config.Annotations = map[string]string{"nodevirt.io/vmi": `{"domain":{"devices":{` +
		`"disks":[{"name":"root","disk":{"bus":"virtio"}}],"interfaces":[{"name":"default","` + binding + `":{}}]}},` +
		`"networks":[{"name":"default","pod":{}}],"volumes":[{"name":"root","containerDisk":{"image":""}}]}`}
	p, err := runPod(ctx, r.shim, config, "vm")
	if err != nil {
		return "", err
	}
	if _, err := p.run(ctx, "guest", image); err != nil {
		return "", err
	}
	return p.ip(ctx)
}

// bareGuest boots a guest on a tap with an address of the node's, as a pod's guest has it otherwise:
// the same card, MTU and processor. The function returned ends it.
func (r *rig) bareGuest(ctx context.Context, disk string) (stop func() error, err error) {
	for _, args := range [][]string{
		{"tuntap", "add", "dev", bareTap, "mode", "tap", "vnet_hdr"},
		{"link", "set", bareTap, "mtu", "1400", "up"},
		{"addr", "add", "10.200.0.1/24", "dev", bareTap},
	} {
		if _, err := r.Output(ctx, "ip", args...); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	var running []*exec.Cmd
	stop = func() error {
		cancel()
		for _, cmd := range running {
			_ = cmd.Wait() // killed, as it should be
		}
		return nil
	}
	for _, line := range [][]string{
		{"dnsmasq", "--keep-in-foreground", "--port=0", "--conf-file=/dev/null", "--interface=" + bareTap, "--bind-interfaces",
			"--leasefile-ro", "--dhcp-range=" + bareIP + "," + bareIP, "--dhcp-option-force=option:mtu,1400",
			"--log-facility=" + filepath.Join(r.Dir(), "log", "bare-dnsmasq.log"), "--pid-file="},
		{"qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,tb-size=32", "-cpu", "max,la57=off", "-m", fmt.Sprint(guestMemory >> 20),
			"-nodefaults", "-display", "none", "-drive", "file=" + disk + ",if=virtio,format=qcow2,snapshot=on",
			"-netdev", "tap,id=n,ifname=" + bareTap + ",script=no,downscript=no",
			"-device", "virtio-net-pci,netdev=n,host_mtu=1400,romfile="},
	} {
		cmd := r.Command(ctx, line[0], line[1:]...)
		if err := cmd.Start(); err != nil {
			return nil, errors.Join(fmt.Errorf("start %s: %w", line[0], err), stop())
		}
		running = append(running, cmd)
	}
	return stop, nil
}

// echoSide sends to a guest's echo server and reads all back. Its tidy waits for an answer.
func (r *rig) echoSide(of, ip string) side {
	return side{
		of: of,
		do: func(ctx context.Context) error { return r.echo(ctx, ip, transfer) },
		tidy: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
			defer cancel()
			for {
				err := r.echo(ctx, ip, 1)
				if err == nil {
					return nil
				}
				select {
				case <-ctx.Done():
					return fmt.Errorf("wait for the guest on %s: %w", of, err)
				case <-time.After(100 * time.Millisecond):
				}
			}
		},
	}
}

func (r *rig) echo(ctx context.Context, ip string, size int64) error {
	conn, err := r.Dial(ctx, "tcp", net.JoinHostPort(ip, "7"))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(make([]byte, size))
		sent <- err
	}()
	_, err = io.CopyN(io.Discard, conn, size)
	if err != nil {
		return errors.Join(fmt.Errorf("echo of %s: %w", ip, err), conn.Close(), <-sent)
	}
	return <-sent
}
