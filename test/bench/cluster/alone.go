package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/node"
)

// aloneXML is a domain with the same guest as the VMIs, on files of its node.
const aloneXML = `<domain type="%s">
  <name>alone</name>
  <uuid>5f7a29c9-24ad-4f5e-9c51-7a1d3f1f3f10</uuid>
  <memory unit="MiB">128</memory>
  <vcpu>1</vcpu>
  <os><type arch="x86_64" machine="q35">hvm</type></os>
  <features><acpi/></features>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type="file" device="disk">
      <driver name="qemu" type="qcow2"/>
      <source file="/run/bench/overlay.qcow2"/>
      <target dev="vda" bus="virtio"/>
    </disk>
    <memballoon model="none"/>
  </devices>
</domain>
`

// aloneBoots is the time that the guest gets to boot: nothing asks it.
const aloneBoots = 20 * time.Second

// jobDown is the downtime in libvirt's account of a migration, in milliseconds.
var jobDown = regexp.MustCompile(`Total downtime:\s+(\d+)`)

// alone measures libvirt's own migration of the same guest between the same libvirtds: virsh connects to
// both, memory and disk go over TCP without TLS.
func (r *rig) alone(ctx context.Context, rounds int) (all []moved, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(rounds+1)*limit)
	defer cancel()
	path, err := guest.Tiny(ctx, r.Control().GuestOptions())
	if err != nil {
		return nil, err
	}
	for _, n := range r.Nodes() {
		folder := filepath.Join(n.Dir(), "run", "bench")
		if err := errors.Join(os.MkdirAll(folder, 0o777), os.Chmod(folder, 0o777)); err != nil {
			return nil, fmt.Errorf("make a folder for libvirt's guest: %w", err)
		}
		if err := hardLink(path, filepath.Join(folder, "base.qcow2")); err != nil {
			return nil, err
		}
		if err := overlay(ctx, n); err != nil {
			return nil, err
		}
	}
	kind := "qemu"
	if _, err := os.Stat("/dev/kvm"); err == nil {
		kind = "kvm"
	}
	source, target := r.Nodes()[0], r.Nodes()[1]
	file := filepath.Join(source.Dir(), "run", "bench", "alone.xml")
	if err := os.WriteFile(file, fmt.Appendf(nil, aloneXML, kind), 0o644); err != nil {
		return nil, fmt.Errorf("write libvirt's domain: %w", err)
	}
	if _, err := virsh(ctx, source, "create", file); err != nil {
		return nil, err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		_, endErr := virsh(end, source, "destroy", "alone")
		err = errors.Join(err, endErr)
	}()
	if err := sleep(ctx, aloneBoots); err != nil {
		return nil, err
	}
	for i := range rounds + 1 {
		fmt.Fprintf(r.log, "a migration by libvirt alone: round %d of %d\n", i, rounds)
		if err := overlay(ctx, target); err != nil {
			return nil, err
		}
		begun := time.Now()
		_, err := virsh(ctx, source, "migrate", "--live", "--copy-storage-inc", "alone", target.LibvirtURI(), "tcp://"+r.address(target))
		if err != nil {
			return nil, err
		}
		took := time.Since(begun)
		job, err := virsh(ctx, target, "domjobinfo", "--completed", "alone")
		if err != nil {
			return nil, err
		}
		down := jobDown.FindStringSubmatch(job)
		if down == nil {
			return nil, fmt.Errorf("libvirt's account has no downtime: %s", job)
		}
		ms, err := strconv.Atoi(down[1])
		if err != nil {
			return nil, err
		}
		if i > 0 {
			all = append(all, moved{nodes: took, down: time.Duration(ms) * time.Millisecond})
		}
		source, target = target, source
	}
	return all, nil
}

// address is a node's in the network of the nodes.
func (r *rig) address(n *node.Node) string {
	if n == r.Nodes()[0] {
		return "10.200.0.11"
	}
	return "10.200.0.12"
}

// overlay makes a new overlay on a node.
func overlay(ctx context.Context, n *node.Node) error {
	if _, err := n.Output(ctx, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", "/run/bench/base.qcow2", "/run/bench/overlay.qcow2"); err != nil {
		return err
	}
	return os.Chmod(filepath.Join(n.Dir(), "run", "bench", "overlay.qcow2"), 0o666)
}

// hardLink makes a hard link, or a copy if the folders are on two file systems.
func hardLink(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("copy a disk: %w", err)
	}
	return os.WriteFile(to, text, 0o644)
}

// virsh gives a node's libvirtd a command from the machine, where the other node's socket is seen, too.
func virsh(ctx context.Context, n *node.Node, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "virsh", append([]string{"--connect", n.LibvirtURI()}, args...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("virsh %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(out), nil
}
