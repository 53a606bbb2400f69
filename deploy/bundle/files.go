package bundle

import (
	"archive/tar"
	"strings"
)

// own is the layer of nodevirt's programs.
const own = "nodevirt"

// programs returns where nodevirt's programs are in the image: as in the packages.
func programs() []string {
	return []string{
		"usr/bin/nodevirt", "usr/libexec/nodevirt/nodevirt-qemu", "usr/libexec/nodevirt/nodevirt-shim",
		"usr/libexec/nodevirt/nodevirt-view",
	}
}

// mergedFolders returns the folders that are links to those of the same name in /usr, by their architecture, or "" for
// all architectures.
func mergedFolders() map[string]string {
	return map[string]string{"bin": "", "lib": "", "lib64": "amd64", "sbin": ""}
}

// base adds the folders that a root needs, and the files that maintainer scripts would write. The loader needs no cache:
// it finds libraries in the folders that it is built for.
func (t *tree) base(architecture string) error {
	for link, only := range mergedFolders() {
		if only == "" || only == architecture {
			t.entries[link] = entry{layer: libraries, kind: tar.TypeSymlink, mode: 0o777, target: "usr/" + link}
		}
	}
	for _, dir := range []string{"dev", "etc", "opt", "proc", "root", "run", "sys", "tmp", "usr", "var", "var/lib", "var/log"} {
		t.entries[dir] = entry{layer: libraries, kind: tar.TypeDir, mode: 0o755}
	}
	t.entries["var/run"] = entry{layer: libraries, kind: tar.TypeSymlink, mode: 0o777, target: "../run"}
	for name, text := range baseFiles() {
		e, err := t.store(entry{layer: libraries, kind: tar.TypeReg, mode: 0o644}, strings.NewReader(text))
		if err != nil {
			return err
		}
		t.entries[name] = e
	}
	return nil
}

// baseFiles returns the texts of the files that no package has. The users' numbers are those that Debian reserves.
// The group of /dev/kvm is the node's.
func baseFiles() map[string]string {
	return map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/usr/sbin/nologin\n" +
			"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n" +
			"libvirt-qemu:x:64055:64055:Libvirt Qemu:/var/lib/libvirt:/usr/sbin/nologin\n",
		"etc/group": "root:x:0:\nnogroup:x:65534:\nlibvirt-qemu:x:64055:\n",
		"etc/nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n" +
			"protocols: files\nservices: files\nethers: files\nrpc: files\n",
	}
}
