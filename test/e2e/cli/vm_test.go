package cli

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

type vm struct {
	Name, State, IP, Domain, DomainXML, LogPath string
	ContainerID                                 string
	QEMUPID                                     int
	CPUs                                        int
	Memory                                      int64
	Disks                                       []struct {
		Name, Source, Format   string
		VirtualSize, Allocated int64
	}
	NICs []struct{ Address, MAC string }
}

func TestVM(t *testing.T) {
	u := newUser(t)
	// The first pod brings the node's bridge, which stays.
	u.do("image", "build", disk(t, "first", guest.PowerOff), "-t", "first:1")
	u.do(u.run("first:1", "--rm")...)
	t.Run("from a disk to a guest that answers", u.testLife)
	t.Run("disks of every kind", u.testDisks)
	t.Run("a guest's end is the command's", u.testEnd)
	t.Run("a failure leaves nothing", u.testFailure)
	t.Run("an interrupt leaves nothing", u.testInterrupt)
	t.Run("console on a terminal", u.testConsole)
	t.Run("pull on a terminal", u.testProgress)
	t.Run("display", u.testDisplay)
	t.Run("registry", u.testRegistry)
	t.Run("images that no VM boots from", u.testUnbootable)
}

// in is the user in a subtest.
func (u user) in(t *testing.T) user { u.T = t; return u }

func (u user) testLife(t *testing.T) {
	u = u.in(t)
	tiny, err := guest.Tiny(t.Context(), u.n.GuestOptions())
	assert.NilError(t, err)
	built := u.do("image", "build", tiny, "-t", "tiny:1")
	if name, _, _ := strings.Cut(built, "\n"); name != "docker.io/library/tiny:1" {
		t.Errorf("image build wrote %q", built)
	}
	before := u.census(t)
	userData := filepath.Join(t.TempDir(), "user-data")
	assert.NilError(t, os.WriteFile(userData, []byte("#!/bin/sh\necho seeded\n"), 0o644))
	id := strings.TrimSpace(u.do(u.run("tiny:1", "-d", "--name", "web", "--cpus", "1.5", "--cloud-init", userData)...))
	if got := strings.TrimSpace(u.do("ps", "-q")); got != id {
		t.Errorf("ps -q shows %q, not %q", got, id)
	}
	if table := u.do("ps"); !strings.Contains(table, "web") || !strings.Contains(table, "Running") {
		t.Errorf("ps shows\n%s", table)
	}
	v := decode[vm](t, u.do("inspect", "web", "-o", "json"))
	u.checkVM(v, id)
	if phases := u.do("inspect", "web", "--timeline"); !strings.HasPrefix(phases, "PHASE") || !strings.Contains(phases, "\nresume ") {
		t.Errorf("inspect --timeline wrote\n%s", phases)
	}
	if xml := u.do("inspect", "default/web", "-o", "xml"); strings.TrimSpace(xml) != v.DomainXML || !strings.Contains(xml, v.Domain) {
		t.Errorf("inspect -o xml wrote\n%s", xml)
	}
	wait.Until(u, "the guest's page", func() bool {
		page, err := u.n.Output(t.Context(), "curl", "-s", "-m", "15", "http://"+v.IP+"/")
		return err == nil && strings.Contains(page, "host=web")
	})
	if r := u.try(u.run("tiny:1", "--name", "web")...); r.code != 1 || !strings.Contains(r.err, "exists already: remove it with \"nodevirt rm web\"") {
		t.Errorf("a second VM of the name: %+v", r)
	}
	u.do("rm", "web")
	u.wantNothingSince(t, before)
	if _, err := os.Stat(v.LogPath); !os.IsNotExist(err) {
		t.Errorf("the log is still there: %v", err)
	}
	if r := u.try("inspect", "web"); r.code != 1 || !strings.Contains(r.err, `find VM "web": not on this node`) {
		t.Errorf("inspect of none: %+v", r)
	}
}

func (u user) checkVM(v vm, id string) {
	u.Helper()
	if v.ContainerID != id || v.Name != "web" || v.State != "Running" || v.CPUs != 2 || v.Memory != 128<<20 || v.QEMUPID == 0 {
		u.Errorf("inspect prints %+v", v)
	}
	if len(v.NICs) != 1 || !strings.HasPrefix(v.NICs[0].Address, v.IP+"/") || v.NICs[0].MAC == "" {
		u.Errorf("its NICs are %+v, its IP is %s", v.NICs, v.IP)
	}
	var sources []string
	for _, d := range v.Disks {
		sources = append(sources, d.Source)
	}
	if diff := cmp.Diff([]string{"image", "seed"}, sources); diff != "" {
		u.Error(diff)
	} else if v.Disks[0].Allocated == 0 || v.Disks[0].VirtualSize == 0 {
		u.Errorf("its disk is %+v", v.Disks[0])
	}
}

// knownWithoutLibvirtd asks for a VM while libvirtd is away and QEMU is stopped.
func (u user) knownWithoutLibvirtd(name string) {
	u.Helper()
	v := decode[vm](u.T, u.do("inspect", name, "-o", "json"))
	qemu := strconv.Itoa(v.QEMUPID)
	if err := u.n.Kill(u.Context(), node.Libvirtd, syscall.SIGKILL); err != nil {
		u.Fatal(err)
	}
	for _, args := range [][]string{{"kill", "-STOP", qemu}, {"kill", "-CONT", qemu}} {
		if _, err := u.n.Output(u.Context(), args[0], args[1:]...); err != nil {
			u.Error(err)
		}
		if table := u.do("ps"); !strings.Contains(table, "Running") || !strings.Contains(table, v.IP) {
			u.Errorf("without libvirtd ps shows\n%s", table)
		}
		if got := decode[vm](u.T, u.do("inspect", name, "-o", "json")); got.QEMUPID != v.QEMUPID || got.DomainXML != v.DomainXML {
			u.Errorf("without libvirtd inspect prints %+v", got)
		}
	}
	if err := u.n.Resume(u.Context(), node.Libvirtd); err != nil {
		u.Fatal(err)
	}
}

func (u user) testEnd(t *testing.T) {
	u = u.in(t)
	u.do("image", "build", disk(t, "all is said", guest.PowerOff), "-t", "off:1")
	r := u.try(u.run("off:1", "--rm", "--name", "off")...)
	if r.code != 0 || !strings.Contains(r.out, "all is said") || !strings.Contains(r.err, "VM off has powered off") {
		t.Errorf("a guest that powers off: %+v", r)
	}
	if left := u.do("ps", "-a", "-q"); left != "" {
		t.Errorf("--rm left %s", left)
	}
	if r := u.try(u.run("off:1", "--name", "kept")...); r.code != 0 {
		t.Errorf("without --rm: %+v", r)
	}
	if table := u.do("ps", "-a"); !strings.Contains(table, "Exited (0)") {
		t.Errorf("ps -a shows\n%s", table)
	}
	if table := u.do("ps"); strings.Contains(table, "kept") {
		t.Errorf("ps shows\n%s", table)
	}
	u.do("rm", "kept")
}

func (u user) testFailure(t *testing.T) {
	u = u.in(t)
	u.do("image", "build", disk(t, "halted", guest.Halt), "-t", "halt:1")
	before := u.census(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{u.run("no-such.invalid/disk:1"), "pull image no-such.invalid/disk:1"},
		{u.run("no-such:1", "--pull", "never"), "is not on this node"},
		{u.run("halt:1", "--memory", "500Ki"), "resources.limits.memory"},
		{u.run("halt:1", "--runtime-handler", "vmm"), `has no handler "vmm"`},
		{u.run(u.n.RegistryAddress() + "/pause:dev"), "no disk in /disk"},
	} {
		if r := u.try(c.args...); r.code != 1 || !strings.Contains(r.err, c.want) || strings.Contains(r.err, "rpc error") {
			t.Errorf("%v: %+v, want %q", c.args, r, c.want)
		}
	}
	u.wantNothingSince(t, before)
	if logs, err := os.ReadDir(filepath.Join(u.n.Dir(), "podlogs")); err != nil || len(logs) > 0 {
		t.Errorf("logs left behind: %v, %v", logs, err)
	}
}

func (u user) census(t *testing.T) node.Census {
	t.Helper()
	c, err := u.n.Settled(t.Context())
	assert.NilError(t, err)
	return c
}

// wantNothingSince fails for all that came or went since, but for some kinds.
func (u user) wantNothingSince(t *testing.T, before node.Census, but ...string) {
	t.Helper()
	diff, err := u.n.Since(t.Context(), before, but...)
	if len(diff) > 0 || err != nil {
		t.Errorf("left behind: %v\n%s", err, strings.Join(diff, "\n"))
	}
}
