package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/nodevirt/nodevirt/test/bench/report"
)

// transfer is what goes to a guest and comes back, in bytes.
const transfer = 8 << 20

// network compares the time that bytes take from the node to a guest in a pod, and back, with that
// to a guest of the same QEMU on a tap in the node, which nothing stands before.
func (r *rig) network(ctx context.Context) (s report.Section, err error) {
	image, disk, err := r.tiny(ctx)
	if err != nil {
		return s, err
	}
	alone, err := r.bareGuest(ctx, 0, guestMemory, "file="+disk+",if=virtio,format=qcow2,snapshot=on")
	if err != nil {
		return s, err
	}
	defer alone.stop()
	sides := []side{r.echoSide("bare tap", alone.ip)}
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
