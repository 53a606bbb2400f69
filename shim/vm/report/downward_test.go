package report_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vhostmd"
	"github.com/nodevirt/nodevirt/shim/vm/report"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

// TestDownward: the disks of running VMs get new metrics every five seconds, also while
// libvirtd is away and while the disk of another VM is missing.
func TestDownward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		running, gone, ended := n.add("a", record.Running), n.add("b", record.Running), n.add("c", record.Exited)
		dir := t.TempDir()
		file := func(id string) string { return filepath.Join(dir, id) }
		for _, v := range []string{running.Record().ID, ended.Record().ID} {
			if err := vhostmd.Create(file(v)); err != nil {
				t.Fatal(err)
			}
		}
		n.domains[running.Record().Domain.UUID] = domain.Stats{
			VCPUs:  []libvirt.DomainStatsVcpu{{Time: 1_500_000_000}, {Time: 500_000_000}},
			Memory: &libvirt.DomainStatsBalloon{Current: 65536, Maximum: 131072},
		}
		d := report.NewDownward(n.options, n.node, vhostmd.Node{Name: "node-1", Proc: dir, Sys: dir}, func(r record.Container) []string {
			return []string{file(r.ID)}
		})
		ctx, cancel := context.WithCancel(t.Context())
		go d.Run(ctx)
		time.Sleep(6 * time.Second)
		text := content(t, file(running.Record().ID))
		for _, want := range []string{"<value>node-1</value>", "<value>2.000000</value>", `<metric type="uint64" context="vm" unit="KiB">`, "<value>131072</value>"} {
			if !strings.Contains(text, want) {
				t.Errorf("no %s in\n%s", want, text)
			}
		}
		if text := content(t, file(ended.Record().ID)); strings.Contains(text, "node-1") {
			t.Errorf("a VM that ended has\n%s", text)
		}
		if _, err := os.Stat(file(gone.Record().ID)); !os.IsNotExist(err) {
			t.Errorf("the disk of another VM: %v", err)
		}
		n.libvirtHangs.Store(2)
		time.Sleep(10 * time.Second)
		if text := content(t, file(running.Record().ID)); !strings.Contains(text, "node-1") {
			t.Errorf("without libvirtd:\n%s", text)
		}
		cancel()
		synctest.Wait()
	})
}

// TestDownwardPort: a guest asks on its port, also after QEMU has closed the connection, and a VM without a
// port is not connected to.
func TestDownwardPort(t *testing.T) {
	dir, err := os.MkdirTemp("", "vmd") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := newNode(t)
	n.options.Layout.Agents = dir
	asking, other := n.add("a", record.Running), n.add("b", record.Running)
	change(asking, func(r *record.Container) { r.Spec.MetricsPort = true })
	listen := func(v *table.VM) net.Listener {
		l, err := net.Listen("unix", n.options.Layout.MetricsSocket(v.Record().ID))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	qemu, unasked := listen(asking), listen(other)
	d := report.NewDownward(n.options, n.node, vhostmd.Node{Name: "node-1", Proc: dir, Sys: dir}, func(record.Container) []string { return nil })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { d.Run(ctx); close(ended) }()
	for range 2 {
		conn, err := qemu.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("GET /metrics/XML\n\n")); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(conn)
		for text := ""; !strings.HasSuffix(text, "\n\n"); {
			line, err := in.ReadString('\n')
			if text += line; err != nil || line == "</metrics>\n" && !strings.Contains(text, "<value>node-1</value>") {
				t.Fatalf("%v after %s", err, text)
			}
		}
		conn.Close()
	}
	cancel()
	<-ended
	_ = unasked.(*net.UnixListener).SetDeadline(time.Now())
	if _, err := unasked.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the VM without a port: %v", err)
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil || len(text) != vhostmd.Size {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
	return string(text)
}
