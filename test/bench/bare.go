package bench

import (
	"context"
	"fmt"
	"path/filepath"
)

// bare is a guest of QEMU alone, without libvirt and a pod.
type bare struct {
	ip      string
	running []*grouped
}

// bareGuest boots a guest on a tap with an address of the node's, as a pod's guest has it otherwise: the same
// card, MTU and processor, and the limit of the pod's memory. The memory is in bytes, and disk the
// arguments of QEMU for it. The number distinguishes guests of one bench. Its stop ends it.
func (r *rig) bareGuest(ctx context.Context, number int, memory int64, disk []string) (*bare, error) {
	tap, net := fmt.Sprintf("bare%d", number), fmt.Sprintf("10.200.%d.", number)
	for _, args := range [][]string{
		{"tuntap", "add", "dev", tap, "mode", "tap", "vnet_hdr"},
		{"link", "set", tap, "mtu", "1400", "up"},
		{"addr", "add", net + "1/24", "dev", tap},
	} {
		if _, err := r.Output(ctx, "ip", args...); err != nil {
			return nil, err
		}
	}
	b := &bare{ip: net + "2"}
	for _, line := range [][]string{
		{"dnsmasq", "--keep-in-foreground", "--port=0", "--conf-file=/dev/null", "--interface=" + tap, "--bind-interfaces",
			"--leasefile-ro", "--dhcp-range=" + b.ip + "," + b.ip, "--dhcp-option-force=option:mtu,1400",
			"--log-facility=" + filepath.Join(r.Dir(), "log", tap+"-dnsmasq.log"), "--pid-file="},
		append([]string{"qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,tb-size=32", "-cpu", "max,la57=off", "-m", fmt.Sprint(memory >> 20),
			"-nodefaults", "-display", "none",
			"-netdev", "tap,id=n,ifname=" + tap + ",script=no,downscript=no",
			"-device", "virtio-net-pci,netdev=n,host_mtu=1400,romfile="}, disk...),
	} {
		g, err := r.prepare(ctx, place{tap, memory + overhead}, line[0], line[1:]...)
		if err != nil {
			b.stop()
			return nil, err
		}
		b.running = append(b.running, g)
		if err := g.release(); err != nil {
			b.stop()
			return nil, fmt.Errorf("start %s: %w", line[0], err)
		}
	}
	return b, nil
}

// stop ends the guest.
func (b *bare) stop() {
	for _, g := range b.running {
		g.end()
	}
}
