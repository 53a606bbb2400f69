package server_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/controller/certs"
	"github.com/nodevirt/nodevirt/controller/export/server"
	"github.com/nodevirt/nodevirt/test/loopfs"
	"github.com/nodevirt/nodevirt/test/needs"
)

const token = "correct horse"

// rig is a server of PVCs that are folders of the test.
type rig struct {
	t      *testing.T
	dir    string
	base   string
	client *http.Client
}

// write writes a file that the server reads.
func write(t *testing.T, content any, path ...string) {
	t.Helper()
	text, is := content.([]byte)
	if !is {
		var err error
		if text, err = json.Marshal(content); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// configured returns the folder of a server's files.
func configured(t *testing.T, volumes ...server.Volume) string {
	t.Helper()
	return configuredAs(t, server.Config{Name: "out", Volumes: volumes, Manifests: true})
}

func configuredAs(t *testing.T, c server.Config) string {
	t.Helper()
	dir := t.TempDir()
	write(t, c, dir, server.ServerFolder, server.FileConfig)
	write(t, []any{map[string]any{"kind": "ConfigMap"}, map[string]any{"kind": "VirtualMachine"}}, dir, server.ServerFolder, server.FileManifests)
	write(t, []byte(token), dir, server.TokenFolder, server.FileToken)
	return dir
}

// serve serves volumes over HTTPS, to a client that trusts their authority alone.
func serve(t *testing.T, volumes ...server.Volume) *rig {
	t.Helper()
	return serveConfig(t, server.Config{Name: "out", Volumes: volumes, Manifests: true})
}

func serveConfig(t *testing.T, c server.Config) *rig {
	t.Helper()
	const name = "virt-export-out.default.svc"
	now := time.Now()
	authority, cert, key, err := certs.ForServer([]string{name}, now, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	dir := configuredAs(t, c)
	s, err := server.New(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l, pair) }()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: name}, DisableCompression: true}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		s.Close()
	})
	return &rig{t: t, dir: dir, base: "https://" + l.Addr().String(), client: &http.Client{Transport: transport}}
}

// ask sends a request; header are pairs.
func (g *rig) ask(method, path string, header ...string) *http.Response {
	g.t.Helper()
	r, err := http.NewRequestWithContext(g.t.Context(), method, g.base+path, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	for pair := range slices.Chunk(header, 2) {
		r.Header.Set(pair[0], pair[1])
	}
	answer, err := g.client.Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

// get returns the body of an answer with a status.
func (g *rig) get(path string, status int, header ...string) []byte {
	g.t.Helper()
	answer := g.ask(http.MethodGet, path, append(header, "x-kubevirt-export-token", token)...)
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != status {
		g.t.Fatalf("%s: %s, %v; want %d", path, answer.Status, err, status)
	}
	return body
}

func unzip(t *testing.T, content []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

// diskOf returns a disk that is mostly zeros.
func diskOf(size int) []byte {
	content := make([]byte, size)
	copy(content, "boot")
	copy(content[size-3:], "end")
	return content
}

// expectDisk wants a disk, whole, compressed and in part.
func (g *rig) expectDisk(name string, want []byte) {
	g.t.Helper()
	if got := g.get("/volumes/"+name+"/disk.img", http.StatusOK); !bytes.Equal(got, want) {
		g.t.Errorf("%s: %d bytes; want %d", name, len(got), len(want))
	}
	if got := unzip(g.t, g.get("/volumes/"+name+"/disk.img.gz", http.StatusOK)); !bytes.Equal(got, want) {
		g.t.Errorf("%s: %d bytes after gzip; want %d", name, len(got), len(want))
	}
	if got := g.get("/volumes/"+name+"/disk.img", http.StatusPartialContent, "Range", "bytes=0-3"); string(got) != "boot" {
		g.t.Errorf("%s: begins with %q", name, got)
	}
}

// TestDisk serves the disk of a file system; what else is in the PVC has no path.
func TestDisk(t *testing.T) {
	dir, want := t.TempDir(), diskOf(1<<20)
	write(t, want, dir, "disk.img")
	write(t, []byte("more"), dir, "other")
	g := serve(t, server.Volume{Name: "root.disk", Path: dir, Disk: true})
	g.expectDisk("root.disk", want)
	for _, path := range []string{"/volumes/root.disk/dir/", "/volumes/root.disk/disk.tar.gz", "/volumes/root.disk/other", "/volumes/other/disk.img"} {
		g.get(path, http.StatusNotFound)
	}
	head := g.ask(http.MethodHead, "/volumes/root.disk/disk.img.gz", "x-kubevirt-export-token", token)
	if head.StatusCode != http.StatusOK || head.Header.Get("Content-Type") != "application/gzip" {
		t.Errorf("HEAD: %s, %v", head.Status, head.Header)
	}
	if put := g.ask(http.MethodPut, "/volumes/root.disk/disk.img", "x-kubevirt-export-token", token); put.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("PUT: %s", put.Status)
	}
}

// TestBlock serves a block device.
func TestBlock(t *testing.T) {
	needs.Parts(t, "root, for a loop device")
	want := diskOf(4 << 20)
	device := loopfs.Device(t, int64(len(want)))
	if err := os.WriteFile(device, want, 0); err != nil {
		t.Fatal(err)
	}
	serve(t, server.Volume{Name: "data", Path: device, Block: true}).expectDisk("data", want)
}

// TestMissingDisk: a PVC that no VM has used yet does not keep others from being served.
func TestMissingDisk(t *testing.T) {
	used := t.TempDir()
	write(t, diskOf(8), used, "disk.img")
	g := serve(t, server.Volume{Name: "new", Path: t.TempDir(), Disk: true}, server.Volume{Name: "used", Path: used, Disk: true})
	if got := g.get("/volumes/new/disk.img.gz", http.StatusNotFound); !strings.Contains(string(got), "start its VM once") {
		t.Errorf("%s", got)
	}
	g.get("/volumes/used/disk.img", http.StatusOK)
}

// TestNoDisk: a guest's disk is a file of its PVC, and nothing else.
func TestNoDisk(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, []byte("secret"), secret)
	for name, make := range map[string]func(path string) error{
		"link":   func(path string) error { return os.Symlink(secret, path) },
		"folder": func(path string) error { return os.Mkdir(path, 0o755) },
		"pipe":   func(path string) error { return syscall.Mkfifo(path, 0o644) },
	} {
		dir := t.TempDir()
		if err := make(filepath.Join(dir, "disk.img")); err != nil {
			t.Fatal(err)
		}
		s, err := server.New(configured(t, server.Volume{Name: "root", Path: dir, Disk: true}), slog.New(slog.DiscardHandler))
		if err == nil {
			s.Close()
			t.Errorf("%s: the server has it", name)
		} else if !strings.Contains(err.Error(), "volume root") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// hostile makes a folder with what a guest can put there.
func hostile(t *testing.T) (dir string) {
	t.Helper()
	outside := t.TempDir()
	write(t, []byte("secret"), outside, "secret")
	dir = t.TempDir()
	write(t, []byte("hello"), dir, "a", "b", "file")
	write(t, []byte("<script>"), dir, "page.html")
	write(t, []byte("root's"), dir, "lost+found", "file")
	for name, target := range map[string]string{"out": outside, "up": "../../../../etc/passwd", "in": "a/b/file"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestFolder serves files of a file system, and none outside.
func TestFolder(t *testing.T) {
	g := serve(t, server.Volume{Name: "files", Path: hostile(t)})
	const base = "/volumes/files/dir/"
	if got := string(g.get(base, http.StatusOK)); !strings.Contains(got, `<a href="a/">`) || !strings.Contains(got, `<a href="out">`) {
		t.Errorf("list %s", got)
	}
	for _, path := range []string{"a/b/file", "in"} {
		if got := g.get(base+path, http.StatusOK); string(got) != "hello" {
			t.Errorf("%s: %q", path, got)
		}
	}
	answer := g.ask(http.MethodGet, base+"page.html", "x-kubevirt-export-token", token)
	if answer.Header.Get("Content-Security-Policy") != "sandbox" || answer.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("header %v", answer.Header)
	}
	for _, path := range []string{"out/secret", "up", "out", "pipe"} {
		g.get(base+path, http.StatusInternalServerError)
	}
	for _, path := range []string{"../../../etc/passwd", "%2e%2e/%2e%2e/%2e%2e/etc/passwd", "..%2f..%2f..%2fetc%2fpasswd", "none"} {
		if got := g.ask(http.MethodGet, base+path, "x-kubevirt-export-token", token); got.StatusCode < 400 {
			t.Errorf("%s: %s", path, got.Status)
		}
	}
}

// TestArchive serves a file system in one file, with links as links.
func TestArchive(t *testing.T) {
	g := serve(t, server.Volume{Name: "files", Path: hostile(t)})
	got := map[string]string{}
	r := tar.NewReader(bytes.NewReader(unzip(t, g.get("/volumes/files/disk.tar.gz", http.StatusOK))))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got[h.Name] = h.Linkname + string(content)
		delete(got, "./out") // another path each time
	}
	want := map[string]string{
		"./": "", "./a/": "", "./a/b/": "", "./a/b/file": "hello", "./page.html": "<script>", "./up": "../../../../etc/passwd", "./in": "a/b/file",
	}
	if !maps.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
}

// TestDepth: a client does not take a part of a folder for the whole.
func TestDepth(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(dir+strings.Repeat("/d", 300), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 2000 { // more than the server holds back
		write(t, []byte(strings.Repeat("x", i)), dir, "d", string(rune('a'+i%26))+strings.Repeat("n", i%200)+"-"+time.Duration(i).String())
	}
	g := serve(t, server.Volume{Name: "deep", Path: dir})
	answer := g.ask(http.MethodGet, "/volumes/deep/disk.tar.gz", "x-kubevirt-export-token", token)
	if _, err := io.Copy(io.Discard, answer.Body); err == nil && answer.StatusCode == http.StatusOK {
		t.Error("the answer is whole")
	}
}

// TestToken: without the token there is nothing, and its owner can change it.
func TestToken(t *testing.T) {
	dir := t.TempDir()
	write(t, diskOf(8), dir, "disk.img")
	g := serve(t, server.Volume{Name: "root", Path: dir, Disk: true})
	paths := []string{"/volumes/root/disk.img", "/volumes/root/disk.img.gz", "/internal/manifests/all", "/internal/manifests/secret"}
	refused := func(header ...string) {
		t.Helper()
		for _, path := range paths {
			if got := g.ask(http.MethodGet, path, header...); got.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s with %q: %s", path, header, got.Status)
			}
		}
	}
	refused()
	refused("x-kubevirt-export-token", "")
	refused("x-kubevirt-export-token", token+"s")
	refused("Authorization", "Bearer "+token)
	if got := g.ask(http.MethodGet, server.PathReady); got.StatusCode != http.StatusOK {
		t.Errorf("probe: %s", got.Status)
	}
	g.get(paths[0], http.StatusOK)
	file := filepath.Join(g.dir, server.TokenFolder, server.FileToken)
	write(t, []byte("another\n"), file)
	refused("x-kubevirt-export-token", token)
	if got := g.ask(http.MethodGet, paths[0], "x-kubevirt-export-token", "another"); got.StatusCode != http.StatusOK {
		t.Errorf("new token: %s", got.Status)
	}
	write(t, []byte(" \n"), file)
	refused("x-kubevirt-export-token", "")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	refused("x-kubevirt-export-token", "another")
}

// TestTransfers: more clients than the bound wait, and one that ends makes room.
func TestTransfers(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "disk.img"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(1 << 30); err != nil { // more than sockets hold back
		t.Fatal(err)
	}
	g := serve(t, server.Volume{Name: "root", Path: dir, Disk: true})
	var all []*http.Response
	for range 8 {
		answer := g.ask(http.MethodGet, "/volumes/root/disk.img", "x-kubevirt-export-token", token)
		if answer.StatusCode != http.StatusOK {
			t.Fatal(answer.Status)
		}
		all = append(all, answer)
	}
	if got := g.ask(http.MethodGet, "/volumes/root/disk.img", "x-kubevirt-export-token", token); got.StatusCode != http.StatusServiceUnavailable || got.Header.Get("Retry-After") == "" {
		t.Errorf("%s, %v", got.Status, got.Header)
	}
	for _, answer := range all {
		_ = answer.Body.Close()
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		got := g.ask(http.MethodGet, "/volumes/root/disk.img", "x-kubevirt-export-token", token, "Range", "bytes=0-3")
		if got.StatusCode == http.StatusPartialContent {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still %s", got.Status)
		}
	}
}

// TestManifests serves a VM's manifests in the client's format.
func TestManifests(t *testing.T) {
	g := serve(t)
	if got := string(g.get("/internal/manifests/all", http.StatusOK, "Accept", "application/yaml")); got != "kind: ConfigMap\n---\nkind: VirtualMachine\n---\n" {
		t.Errorf("YAML %q", got)
	}
	var list struct {
		Kind  string
		Items []struct{ Kind string }
	}
	if err := json.Unmarshal(g.get("/internal/manifests/all", http.StatusOK, "Accept", "application/json"), &list); err != nil ||
		list.Kind != "List" || len(list.Items) != 2 || list.Items[1].Kind != "VirtualMachine" {
		t.Errorf("JSON %+v, %v", list, err)
	}
	got := string(g.get("/internal/manifests/secret", http.StatusOK, "Accept", "application/yaml"))
	if !strings.Contains(got, "name: header-secret-out") || !strings.Contains(got, "token: x-kubevirt-export-token:"+token) {
		t.Errorf("secret %q", got)
	}
}

// TestFormats: the formats of disks and of folders differ.
func TestFormats(t *testing.T) {
	for want, v := range map[string]server.Volume{
		"raw /volumes/a/disk.img, gzip /volumes/a/disk.img.gz": {Name: "a", Disk: true},
		"raw /volumes/b/disk.img, gzip /volumes/b/disk.img.gz": {Name: "b", Block: true},
		"dir /volumes/c/dir/, tar.gz /volumes/c/disk.tar.gz":   {Name: "c"},
	} {
		var got []string
		for _, f := range v.Formats() {
			got = append(got, string(f.Name)+" "+f.Path)
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%q; want %q", got, want)
		}
	}
}
