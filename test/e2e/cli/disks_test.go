package cli

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/wait"
)

// testDisks has a VM with disks of each kind, and one that boots from a data disk.
func (u user) testDisks(t *testing.T) {
	u = u.in(t)
	cd := filepath.Join(t.TempDir(), "cd.iso")
	assert.NilError(t, guest.WriteCD(cd, guest.BootSector("from the CD", guest.Halt)))
	u.do("image", "build", disk(t, "from a data disk", guest.PowerOff), "-t", "data:1")
	u.do("image", "build", disk(t, "other", guest.PowerOff), "-t", "other:1")
	u.do("image", "build", cd, "-t", "cd:1")
	before := u.census(t)
	u.do(u.run("tiny:1", "-d", "--name", "disks", // TestVM's first built it
		"--disk", "data:1,serial=D-1", "--disk", "other:1,bus=scsi,serial=a-serial-of-an-other-disk,readonly",
		"--disk", "cd:1,cdrom,bus=scsi,serial=CD-1", "--disk", "size=3Mi,name=scratch,cache=none,io=native,serial=S-1",
		"--disk", "data:1,name=onsata,bus=sata,serial=SATA-1,errors=report")...)
	v := decode[vm](t, u.do("inspect", "disks", "-o", "json"))
	type seen struct {
		Name, Serial string
		Size         int64
		ReadOnly     bool
	}
	var got struct{ Disks []seen }
	wait.Until(u, "the guest's disks", func() bool {
		page, err := u.n.Output(t.Context(), "curl", "-s", "-m", "15", "http://"+v.IP+"/cgi-bin/info")
		return err == nil && json.Unmarshal([]byte(page), &got) == nil && len(got.Disks) > 0
	})
	slices.SortFunc(got.Disks, func(a, b seen) int { return cmp.Compare(a.Name, b.Name) })
	want := []seen{ // the guest has no driver for SATA
		{Name: "sda", Serial: "a-serial-of-an-other-disk", Size: 1 << 20, ReadOnly: true},
		{Name: "sr0", Size: got.Disks[min(1, len(got.Disks)-1)].Size, ReadOnly: true},
		{Name: "vda", Size: 64 << 20},
		{Name: "vdb", Serial: "D-1", Size: 1 << 20},
		{Name: "vdc", Serial: "S-1", Size: 3 << 20},
	}
	if diff := gocmp.Diff(want, got.Disks); diff != "" {
		t.Errorf("the guest's disks (-want +got):\n%s", diff)
	}
	for _, part := range []string{"<serial>SATA-1</serial>", `bus="sata"`, `error_policy="report"`, "<serial>CD-1</serial>", `io="native"`} {
		if !strings.Contains(v.DomainXML, part) {
			t.Errorf("the machine has no %s:\n%s", part, v.DomainXML)
		}
	}
	u.do("rm", "disks")
	for _, bus := range []string{"virtio", "scsi", "sata"} {
		r := u.try(u.run("tiny:1", "--rm", "--name", "boots", "--disk", "data:1,boot=1,bus="+bus)...)
		if r.code != 0 || !strings.Contains(r.out, "from a data disk") {
			t.Errorf("with a data disk first in boot order, on %s: %+v", bus, r)
		}
	}
	if r := u.try(u.run("tiny:1", "--disk", "cd:1,cdrom,bus=virtio,boot=0")...); r.code == 0 || !strings.Contains(r.err, "want a number from 1") {
		t.Errorf("a boot order of none: %+v", r)
	}
	u.wantNothingSince(t, before)
}
