package domain

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// statusFile is libvirtd's file of an active domain, as far as it matters. The paths are those that libvirtd
// has made: the file, a folder and one of libvirt 11's for sockets.
func statusFile(t *testing.T, run, name, reason, pid, mark string) (paths []string) {
	t.Helper()
	lib, sockets := filepath.Join(t.TempDir(), "domain-1-"+name), filepath.Join(t.TempDir(), "1-"+name)
	for _, dir := range []string{filepath.Join(run, "qemu"), lib, sockets} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	text := fmt.Sprintf(`<!--
WARNING: THIS IS AN AUTO-GENERATED FILE.
-->

<domstatus state='running' reason='%s' pid='%s'>
  <libDir path='%s'/>
  <channelTargetDir path='%s'/>
  <domain type='qemu' id='1'>
    <name>%s</name>
    <metadata>%s</metadata>
  </domain>
</domstatus>
`, reason, pid, lib, sockets, name, mark)
	file := filepath.Join(run, "qemu", name+".xml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{file, lib, sockets}
}

func TestUnborn(t *testing.T) {
	const ours = `<nv:vm xmlns:nv="https://nodevirt.io/domain/1"><nv:container id="1"/></nv:vm>`
	const starting = "starting up"
	run := t.TempDir()
	unborn := statusFile(t, run, "unborn", starting, "0", ours)
	var others []string
	for _, d := range []struct{ name, reason, pid, mark string }{
		{"runs", "booted", "17", ours},
		{"starts", starting, "17", ours},
		{"foreign", starting, "0", `<vm xmlns="https://example.com/">1</vm>`},
	} {
		others = append(others, statusFile(t, run, d.name, d.reason, d.pid, d.mark)...)
	}
	garbage := filepath.Join(run, "qemu", "garbage.xml")
	if err := os.WriteFile(garbage, []byte("<domstatus reason='starting up' pid='0'"), 0o600); err != nil {
		t.Fatal(err)
	}
	others = append(others, garbage, "/")

	found, err := FindUnborn(run)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 || found[0].Name != "unborn" || found[0].Since.IsZero() {
		t.Fatalf("found %+v", found)
	}
	if err := found[0].Remove(); err != nil {
		t.Fatal(err)
	}
	for _, path := range unborn {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is still there", path)
		}
	}
	for _, path := range others {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("it is gone: %v", err)
		}
	}
	for path, is := range map[string]bool{
		"/": false, "/run": false, "1-name": false, "/x/1-": false, "/x/name-1-x": false, "/x/domain-name": false,
		"/x/1-name": true, "/x/domain-1-name": true,
	} {
		if isDomainFolder(path) != is {
			t.Errorf("the folder %s is a domain's: %v", path, !is)
		}
	}
	if found, err := FindUnborn(filepath.Join(run, "none")); err != nil || len(found) > 0 {
		t.Errorf("without libvirtd's folder: %v, %v", found, err)
	}
}
