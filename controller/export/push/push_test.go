package push_test

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/nodevirt/nodevirt/controller/export/push"
	"github.com/nodevirt/nodevirt/controller/export/server"
	"github.com/nodevirt/nodevirt/test/needs"
)

const (
	user     = "robot"
	password = "do-not-show"
)

// rig is a registry over HTTPS that wants credentials, and the files of an export's pod.
type rig struct {
	t       *testing.T
	at      *httptest.Server
	dir     string
	log     bytes.Buffer
	uploads int
}

func newRig(t *testing.T, disk []byte) *rig {
	t.Helper()
	g := &rig{t: t, dir: t.TempDir()}
	store := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	g.at = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, p, _ := r.BasicAuth()
		if u != user || p != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="disks"`)
			http.Error(w, "denied", http.StatusUnauthorized)
			return
		}
		if r.Method == http.MethodPatch {
			g.uploads++
		}
		store.ServeHTTP(w, r)
	}))
	g.at.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(g.at.Close)
	folder := t.TempDir()
	g.file(disk, folder, "disk.img")
	g.config(server.Config{Name: "out", Volumes: []server.Volume{{Name: "root", Path: folder, Disk: true}},
		Push: &server.Push{Image: g.image(), Volume: "root", Architecture: "arm64"}})
	g.secret("https://"+g.host()+"/v1/", password)
	g.file(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.at.Certificate().Raw}), g.dir, server.PushFolder, "ca.crt")
	return g
}

func (g *rig) host() string  { return g.at.Listener.Addr().String() }
func (g *rig) image() string { return g.host() + "/disks/web:1" }

func (g *rig) file(content []byte, path ...string) {
	g.t.Helper()
	file := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		g.t.Fatal(err)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		g.t.Fatal(err)
	}
}

func (g *rig) config(c server.Config) {
	g.t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		g.t.Fatal(err)
	}
	g.file(text, g.dir, server.ServerFolder, server.FileConfig)
}

// secret writes the credentials as kubectl create secret docker-registry does.
func (g *rig) secret(host, password string) {
	auth := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	g.file(fmt.Appendf(nil, `{"auths":{%q:{"username":%q,"password":%q,"auth":%q}}}`, host, user, password, auth),
		g.dir, server.PushFolder, ".dockerconfigjson")
}

// run returns the termination message.
func (g *rig) run() (push.Result, error) {
	g.t.Helper()
	file := filepath.Join(g.t.TempDir(), "termination-log")
	err := push.Run(g.t.Context(), g.dir, file, slog.New(slog.NewTextHandler(&g.log, nil)))
	text, problem := os.ReadFile(file)
	if problem != nil {
		g.t.Fatal(problem)
	}
	for _, place := range []string{string(text), g.log.String(), fmt.Sprint(err)} {
		if strings.Contains(place, password) || strings.Contains(place, base64.StdEncoding.EncodeToString([]byte(user+":"+password))) {
			g.t.Errorf("the password is in %s", place)
		}
	}
	return push.ReadResult(string(text)), err
}

// pulled returns the image that the registry has.
func (g *rig) pulled() v1.Image {
	g.t.Helper()
	tag, err := name.NewTag(g.image())
	if err != nil {
		g.t.Fatal(err)
	}
	client := g.at.Client().Transport.(*http.Transport).Clone()
	img, err := remote.Image(tag, remote.WithTransport(authorized{client}))
	if err != nil {
		g.t.Fatal(err)
	}
	return img
}

type authorized struct{ http.RoundTripper }

func (a authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.SetBasicAuth(user, password)
	return a.RoundTripper.RoundTrip(r)
}

func disk() []byte {
	d := make([]byte, 8<<20)
	copy(d, "begins")
	copy(d[5<<20:], "middle")
	copy(d[len(d)-4:], "ends")
	return d
}

// TestPush: the registry has an image whose disk is the guest's, by the digest that the result has.
// Equal disks have equal digests, and a second push sends no layer.
func TestPush(t *testing.T) {
	needs.Parts(t, "qemu-img")
	g := newRig(t, disk())
	result, err := g.run()
	if err != nil {
		t.Fatal(err)
	}
	img := g.pulled()
	if err := validate.Image(img, validate.Fast); err != nil {
		t.Error(err)
	}
	digest, err := img.Digest()
	if err != nil || digest.String() != result.Digest {
		t.Errorf("digest %s, %v; the result has %+v", digest, err, result)
	}
	config, err := img.ConfigFile()
	if err != nil || config.Architecture != "arm64" || config.OS != "linux" {
		t.Errorf("config %+v, %v", config, err)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	if size, err := layers[0].Size(); err != nil || size != result.Size || size > 1<<20 {
		t.Errorf("%d bytes, %v; the result has %+v", size, err, result)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	archive := tar.NewReader(content)
	if h, err := archive.Next(); err != nil || h.Name != "disk/" {
		t.Fatalf("%+v, %v", h, err)
	}
	h, err := archive.Next()
	if err != nil || h.Name != "disk/disk.qcow2" || h.Uid != 107 || h.Gid != 107 || h.Mode != 0o444 || h.ModTime.Unix() != 0 {
		t.Fatalf("%+v, %v", h, err)
	}
	folder := t.TempDir()
	text, err := io.ReadAll(archive)
	if err != nil {
		t.Fatal(err)
	}
	g.file(text, folder, "disk.qcow2")
	g.file(disk(), folder, "disk.img")
	out, err := exec.CommandContext(t.Context(), "qemu-img", "compare", "-f", "raw", "-F", "qcow2",
		filepath.Join(folder, "disk.img"), filepath.Join(folder, "disk.qcow2")).CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if !strings.Contains(g.log.String(), "percent=100") {
		t.Errorf("no progress in the log: %s", g.log.String())
	}
	before := g.uploads
	if again, err := g.run(); err != nil || again != result || g.uploads != before {
		t.Errorf("the second push: %+v, %v, %d uploads", again, err, g.uploads-before)
	}
}

// TestFailures: the result says what failed, and the container can be started again.
func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*rig)
		want   string
	}{
		"no credentials":      {func(g *rig) { g.file([]byte(`{}`), g.dir, server.PushFolder, ".dockerconfigjson") }, "401 Unauthorized"},
		"of another registry": {func(g *rig) { g.secret("registry.example.com", password) }, "401 Unauthorized"},
		"wrong credentials":   {func(g *rig) { g.secret(g.host(), "wrong") }, "401 Unauthorized"},
		"no JSON":             {func(g *rig) { g.file([]byte(password), g.dir, server.PushFolder, ".dockerconfigjson") }, "of the push Secret: not what kubectl"},
		"unknown authority":   {func(g *rig) { _ = os.Remove(filepath.Join(g.dir, server.PushFolder, "ca.crt")) }, "certificate signed by unknown authority"},
		"no certificate":      {func(g *rig) { g.file([]byte("x"), g.dir, server.PushFolder, "ca.crt") }, "no certificate in PEM"},
		"no registry":         {func(g *rig) { g.at.Close() }, "connection refused"},
		"no disk": {func(g *rig) {
			g.config(server.Config{Volumes: []server.Volume{{Name: "root", Path: g.t.TempDir(), Disk: true}}, Push: &server.Push{Image: g.image(), Volume: "root"}})
		}, "has no disk.img: start its VM once"},
		"no volume":       {func(g *rig) { g.config(server.Config{Push: &server.Push{Image: g.image(), Volume: "root"}}) }, "no volume root"},
		"nothing to push": {func(g *rig) { g.config(server.Config{}) }, "names no image"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, disk())
			c.change(g)
			result, err := g.run()
			if err == nil || result.Digest != "" || !strings.Contains(result.Error, c.want) {
				t.Errorf("%+v, %v; want %q", result, err, c.want)
			}
		})
	}
}

func TestCheckImage(t *testing.T) {
	for ref, good := range map[string]bool{
		"registry.example.com/disks/web:1": true, "localhost:5000/web:1": true, "10.0.0.1:5000/a/b/c:latest": true,
		"": false, "web": false, "web:1": false, "registry.example.com/web": false, "registry.example.com/Web:1": false,
		"https://registry.example.com/web:1": false, "user:secret@registry.example.com/web:1": false,
		"registry.example.com/web@sha256:" + strings.Repeat("0", 64): false,
	} {
		if err := push.CheckImage(ref); (err == nil) != good {
			t.Errorf("%q: %v", ref, err)
		}
	}
}

// TestReadResult: what a container that was killed leaves is its error, and has a bound.
func TestReadResult(t *testing.T) {
	if r := push.ReadResult(`{"digest":"sha256:00","size":7}`); r.Digest != "sha256:00" || r.Size != 7 || r.Error != "" {
		t.Errorf("%+v", r)
	}
	if r := push.ReadResult(strings.Repeat("x", 1<<20)); r.Digest != "" || len(r.Error) == 0 || len(r.Error) > 2048 {
		t.Errorf("%d bytes of %+v", len(r.Error), r.Digest)
	}
}
