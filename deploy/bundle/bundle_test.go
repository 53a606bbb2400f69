package bundle

import (
	"archive/tar"
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"gotest.tools/v3/assert"
)

func testLists() Lists { return Lists{os.DirFS("lists")} }

// TestLock compares the lock files with the lists that they are made from.
func TestLock(t *testing.T) {
	omitted, err := testLists().without()
	assert.NilError(t, err)
	for _, architecture := range Architectures() {
		packages, err := testLists().Lock(architecture)
		assert.NilError(t, err)
		asked, err := testLists().requests(architecture)
		assert.NilError(t, err)
		layers := map[string]string{}
		for _, p := range packages {
			layers[p.Name] = p.Layer
			sum, err := hex.DecodeString(p.SHA256)
			assert.NilError(t, err)
			assert.Equal(t, len(sum), 32, p.Name)
			if slices.Contains(omitted, p.Name) {
				t.Errorf("%s: %s is locked, and left out; run make bundle-update", architecture, p.Name)
			}
		}
		for _, q := range asked {
			if layers[q.name] != q.layer {
				t.Errorf("%s: %s is in the layer %q instead of %q; run make bundle-update", architecture, q.name, layers[q.name], q.layer)
			}
		}
		var text bytes.Buffer
		assert.NilError(t, WriteLock(&text, packages))
		file, err := os.ReadFile(filepath.Join("lists", LockFile(architecture)))
		assert.NilError(t, err)
		assert.Equal(t, text.String(), string(file))
	}
}

func TestRules(t *testing.T) {
	r := rules{"usr/share/doc/*/*", "!usr/share/doc/*/copyright", "usr/lib/*/x-*.so", "usr/share/man"}
	for name, want := range map[string]bool{
		"usr/share/doc/a/changelog.gz": true, "usr/share/doc/a/examples/b": true, "usr/share/doc/a/copyright": false,
		"usr/share/doc/a": false, "usr/lib/z/x-1.so": true, "usr/lib/z/y.so": false, "usr/share/man/man1/a": true, "usr/share/manual": false,
	} {
		assert.Equal(t, r.drop(name), want, name)
	}
	_, err := testLists().rules()
	assert.NilError(t, err)
}

func TestArchives(t *testing.T) {
	a := parseArchives("Debian main bookworm http://mirror/debian/\nDebian main bookworm-updates http://other/\n" +
		"Debian main bookworm-security http://mirror/security/\nElse main x http://else/\n")
	assert.Equal(t, a, Archives{Main: "http://mirror/debian", Security: "http://mirror/security"})
	r := resolver{archives: a}
	p, err := r.parse("'http://mirror/security/pool/updates/main/k/k_2%3a1%2bx_amd64.deb' k_2%3a1+x_amd64.deb 12 SHA256:ab\n")
	assert.NilError(t, err)
	assert.Equal(t, p, Package{Name: "k", Version: "2:1+x", Archive: "security", Path: "pool/updates/main/k/k_2%3a1%2bx_amd64.deb", SHA256: "ab"})
	assert.Equal(t, a.address(p), "http://mirror/security/pool/updates/main/k/k_2%3a1%2bx_amd64.deb")
	_, err = r.parse("'http://else/k' k_1_amd64.deb 12 SHA256:ab\n")
	assert.ErrorContains(t, err, "in none of the archives")
	_, err = r.parse("'http://mirror/debian/k' k_1_amd64.deb 12 MD5Sum:ab\n")
	assert.ErrorContains(t, err, "SHA-256")
}

func TestLicences(t *testing.T) {
	for text, want := range map[string][]string{
		"Files: *\nLicense: GPL-2+\n text\n\nFiles: x\nLicense: MIT  or BSD\n":        {"GPL-2+", "MIT or BSD"},
		"See /usr/share/common-licenses/LGPL-2.1. Or /usr/share/common-licenses/GPL'": {"GPL", "LGPL-2.1"},
		"Permission is hereby granted, free of\ncharge, to any person":                {"MIT"},
		"All rights reserved": nil,
	} {
		assert.DeepEqual(t, parseLicences(text), want)
	}
}

// packed is a package's archive with these entries, which have owners and times.
func packed(t *testing.T, headers ...tar.Header) *tar.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		text := h.Linkname
		if h.Typeflag == tar.TypeReg {
			h.Linkname, h.Size = "", int64(len(text))
		}
		h.Uid, h.Gid, h.Uname = 7, 7, "seven"
		assert.NilError(t, w.WriteHeader(&h))
		if h.Typeflag == tar.TypeReg {
			_, err := w.Write([]byte(text))
			assert.NilError(t, err)
		}
	}
	assert.NilError(t, w.Close())
	return tar.NewReader(&b)
}

func emptyTree(t *testing.T) *tree {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "contents"))
	assert.NilError(t, err)
	t.Cleanup(func() { assert.NilError(t, f.Close()) })
	made := newTree(f)
	assert.NilError(t, made.base("amd64"))
	return made
}

func reg(name, text string, mode int64) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeReg, Linkname: text, Mode: mode}
}

func TestTree(t *testing.T) {
	made := emptyTree(t)
	p := Package{Name: "a", Layer: node}
	assert.NilError(t, made.read(p, packed(t,
		tar.Header{Name: "./usr/bin/", Typeflag: tar.TypeDir, Mode: 0o755},
		reg("./usr/bin/z", "text", 0o4755),
		tar.Header{Name: "./bin/a", Typeflag: tar.TypeLink, Linkname: "./usr/bin/z"},
		tar.Header{Name: "./usr/bin/l", Typeflag: tar.TypeSymlink, Linkname: "/bin/z"},
	)))
	assert.NilError(t, made.read(p, packed(t, tar.Header{Name: "./usr/bin/", Typeflag: tar.TypeDir, Mode: 0o755})))
	assert.Equal(t, made.entries["usr/bin/z"].mode, int64(0o755))
	assert.Equal(t, made.entries["usr/bin/a"].size, int64(4))
	target, ok := made.resolve("bin/l")
	assert.Assert(t, ok)
	assert.Equal(t, target, "usr/bin/z")
	assert.ErrorContains(t, made.read(p, packed(t, reg("./bin/z", "", 0o755))), "is in a, too")
	assert.ErrorContains(t, made.read(p, packed(t, tar.Header{Name: "./dev/x", Typeflag: tar.TypeChar})), "neither a file")
	assert.ErrorContains(t, made.read(p, packed(t, tar.Header{Name: "./x", Typeflag: tar.TypeLink, Linkname: "y"})), "hard link to y")
}

func TestCheck(t *testing.T) {
	made := emptyTree(t)
	p := Package{Name: "a", Layer: node}
	assert.NilError(t, made.read(p, packed(t, reg("usr/lib/x/libc.so.6", "", 0o644), reg("usr/bin/s", "#! /bin/t -x\n", 0o755),
		reg("usr/bin/t", "", 0o755), reg("usr/share/text", "#!/bin/missing\n", 0o644))))
	// The folders of var/run's target and of the merged folders that this tree does not have.
	assert.NilError(t, made.read(p, packed(t, tar.Header{Name: "usr/sbin", Typeflag: tar.TypeDir, Mode: 0o755},
		tar.Header{Name: "usr/bin", Typeflag: tar.TypeDir}, tar.Header{Name: "usr/lib", Typeflag: tar.TypeDir}, tar.Header{Name: "usr/lib64", Typeflag: tar.TypeDir})))
	assert.NilError(t, made.check())
	assert.NilError(t, made.read(p, packed(t, reg("usr/bin/u", "#!/bin/missing\n", 0o755),
		tar.Header{Name: "usr/bin/loop", Typeflag: tar.TypeSymlink, Linkname: "loop"})))
	err := made.check()
	assert.ErrorContains(t, err, "the script usr/bin/u of a needs /bin/missing, which is missing")
	assert.ErrorContains(t, err, "usr/bin/loop of a is a link to loop, which is missing")
}

// TestLayer reads a layer back: its order, owners and times do not depend on the package.
func TestLayer(t *testing.T) {
	made := emptyTree(t)
	var written [2][]byte
	headers := []tar.Header{{Name: "usr/bin", Typeflag: tar.TypeDir, Mode: 0o755}, reg("usr/bin/z", "text", 0o755), reg("usr/bin/a", "b", 0o644)}
	assert.NilError(t, made.read(Package{Name: "a", Layer: node}, packed(t, headers...)))
	for i := range written {
		file := filepath.Join(t.TempDir(), "layer")
		empty, err := made.layer(file, node)
		assert.NilError(t, err)
		assert.Assert(t, !empty)
		written[i], err = os.ReadFile(file)
		assert.NilError(t, err)
	}
	assert.Assert(t, bytes.Equal(written[0], written[1]))
	assert.DeepEqual(t, made.inLayer(node), []string{"usr", "usr/bin", "usr/bin/a", "usr/bin/z"})
	empty, err := made.layer(filepath.Join(t.TempDir(), "layer"), aarch64)
	assert.NilError(t, err)
	assert.Assert(t, empty)
}
