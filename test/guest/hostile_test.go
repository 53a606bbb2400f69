package guest_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/needs"
)

// Each disk must be what its name says; qemu-img is the judge.
func TestHostileDisks(t *testing.T) {
	needs.Parts(t, "QEMU")
	disks, err := guest.HostileDisks(t.Context(), t.TempDir())
	assert.NilError(t, err)
	foreign := map[string]string{"qcow1": "qcow", "qed": "qed", "vdi": "vdi", "vhdx": "vhdx", "vmdk": "vmdk", "vpc": "vpc"}
	raw := map[string]bool{"empty": true, "one-byte": true, "odd-size": true}
	broken := map[string]bool{
		"luks": true, "truncated": true, "header-only": true, "unknown-version": true, "unknown-feature": true, "large-cluster": true,
		"large-table": true, "table-outside": true, "l1-names-itself": true, "l2-names-itself": true, "l2-names-l1": true,
		"l2-named-twice": true, "l2-ring": true, "refcounts-overlap": true, "refcount-block-loop": true, "data-in-header": true,
		"many-small-clusters": true,
	}
	for _, d := range disks {
		t.Run(d.Name, func(t *testing.T) {
			var info struct {
				Format      string
				VirtualSize int64  `json:"virtual-size"`
				Backing     string `json:"backing-filename"`
				Encrypted   bool
				Specific    struct {
					Data struct {
						DataFile string `json:"data-file"`
					}
				} `json:"format-specific"`
			}
			if broken[d.Name] {
				check := exec.CommandContext(t.Context(), "qemu-img", "check", "-f", "qcow2", d.Path)
				if out, err := check.CombinedOutput(); err == nil {
					t.Errorf("qemu-img finds it good: %s", out)
				}
				return
			}
			out, err := exec.CommandContext(t.Context(), "qemu-img", "info", "--output=json", d.Path).Output()
			assert.NilError(t, err)
			assert.NilError(t, json.Unmarshal(out, &info))
			var right bool
			switch {
			case foreign[d.Name] != "":
				right = info.Format == foreign[d.Name]
			case raw[d.Name]:
				right = info.Format == "raw"
			case d.Name == "backing-file", d.Name == "backing-json":
				right = info.Backing != ""
			case d.Name == "data-file":
				right = info.Specific.Data.DataFile != ""
			case d.Name == "encrypted":
				right = info.Encrypted
			case d.Name == "too-large":
				right = info.VirtualSize == 1<<50
			case d.Name == "over-a-terabyte":
				right = info.VirtualSize == 1025<<30
			}
			if !right {
				t.Errorf("qemu-img says %s", out)
			}
		})
	}
}

// The bomb must be sound, and be one: qemu-io reads the guest's last bytes.
func TestCompressedBomb(t *testing.T) {
	needs.Parts(t, "QEMU")
	bomb, err := guest.CompressedBomb()
	assert.NilError(t, err)
	path := filepath.Join(t.TempDir(), "bomb")
	assert.NilError(t, os.WriteFile(path, bomb, 0o600))
	out, err := exec.CommandContext(t.Context(), "qemu-io", "-r", "-f", "qcow2",
		"-c", "length", "-c", "read -P 0 511G 1M", path).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "512 GiB") || strings.Contains(string(out), "failed") {
		t.Errorf("%v: %s", err, out)
	}
}
