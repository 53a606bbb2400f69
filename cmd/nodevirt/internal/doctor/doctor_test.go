package doctor

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/golden"

	"github.com/nodevirt/nodevirt/deploy"
)

func TestTable(t *testing.T) {
	good := Finding{Check: "QEMU", Level: OK, Detail: "QEMU 7.2"}
	slow := Finding{Check: "accelerator", Level: Warn, Detail: "tcg", Remedy: "enable it"}
	bad := Finding{Check: "dnsmasq", Level: Fail, Detail: "dnsmasq: not\nfound", Remedy: "install dnsmasq-base"}
	for name, c := range map[string]struct {
		found  []Finding
		failed bool
	}{
		"ok.txt":      {[]Finding{good}, false},
		"warning.txt": {[]Finding{good, slow}, false},
		"fail.txt":    {[]Finding{good, slow, bad}, true},
		"unknown.txt": {[]Finding{{Check: privileges, Level: Warn, Detail: "not root", Remedy: "run doctor as root"}, bad}, true},
	} {
		var b bytes.Buffer
		if err := table(&b, c.found); err != nil {
			t.Fatal(err)
		}
		golden.Assert(t, b.String(), name)
		if failed(c.found) != c.failed {
			t.Errorf("%s: failed is %t", name, !c.failed)
		}
	}
}

func TestSettingsAreReadAsLibvirtDoes(t *testing.T) {
	got := settings("# user = \"root\"\nuser = \"+65534\" # nobody\n\nlist = [ ]\nmax_core=0\nmax_core = 1\n")
	want := map[string]string{"user": `"+65534"`, "list": "[]", "max_core": "1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if ours := settings(deploy.QEMUConf); ours["dynamic_ownership"] != "0" || ours["stdio_handler"] != `"file"` {
		t.Errorf("our own file is read as %v", ours)
	}
}

func TestOverlapsOfUserIDs(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"passwd": "root:x:0:0::/:\nlow:x:999:9::/:\nin:x:1000:9::/:\nend:x:1099:9::/:\nhigh:x:1100:9::/:\nodd\n",
		"subuid": "below:900:100\nreaches:900:101\nin:1050:1\nabove:1100:5\nnone:1050:0\nodd:x:1\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"passwd": "in end", "subuid": "reaches in"} {
		found, err := overlaps(filepath.Join(dir, name), 1000, 1099)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, f := range found {
			first, _, _ := strings.Cut(f, " ")
			names = append(names, first)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %q, not %q", name, got, want)
		}
	}
}

func TestMajor(t *testing.T) {
	for text, want := range map[string]int{"QEMU emulator version 7.2.22 (Debian 1:7.2)": 7, "v2.4.2": 2, "1.6.20~ds1": 1, "x": 0} {
		if got := major(text); got != want {
			t.Errorf("%q: %d, not %d", text, got, want)
		}
	}
}
