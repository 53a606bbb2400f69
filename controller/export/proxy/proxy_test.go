package proxy_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	api "kubevirt.io/api/export/v1"

	"github.com/nodevirt/nodevirt/controller/export/server"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// TestForward: in each version of the path, the export's server gets the request with its token, and
// nothing that it does not need.
func TestForward(t *testing.T) {
	var got *http.Request
	g := newRig(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		for name, value := range map[string]string{"Content-Type": "application/gzip", "Set-Cookie": "a=b", "Access-Control-Allow-Origin": "*", "Etag": `"1"`} {
			w.Header().Set(name, value)
		}
		_, _ = io.WriteString(w, "content")
	})
	for _, version := range []string{"v1alpha1", "v1beta1", "v1"} {
		to := strings.Replace(path, "v1beta1", version, 1) + "/volumes//a%20b/disk.img?x-kubevirt-export-token=query&offset=1"
		answer := g.ask(http.MethodGet, to, server.ExportHeader, token, "Range", "bytes=0-3", "Cookie", "session=1", "Authorization", "Bearer x",
			"X-Forwarded-For", "10.0.0.1", "Connection", "upgrade", "Upgrade", "websocket")
		body, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusOK || string(body) != "content" {
			t.Fatalf("%s: %s, %v: %s", to, answer.Status, err, body)
		}
		if got.RequestURI != "/volumes/a%20b/disk.img?x-kubevirt-export-token=query&offset=1" || got.Host != service {
			t.Errorf("%s at %s", got.RequestURI, got.Host)
		}
		want := []string{"Connection", "Range", "User-Agent", http.CanonicalHeaderKey(server.ExportHeader)}
		if have := names(got.Header); !slices.Equal(have, want) || got.Header.Get(server.ExportHeader) != token || got.Header.Get("Connection") != "close" {
			t.Errorf("headers of the request %v; want %v", have, want)
		}
		want = []string{"Content-Length", "Content-Security-Policy", "Content-Type", "Date", "Etag", "X-Content-Type-Options"}
		if have := names(answer.Header); !slices.Equal(have, want) {
			t.Errorf("headers of the answer %v; want %v", have, want)
		}
	}
	for _, address := range g.addresses() {
		if address != service+":443" {
			t.Errorf("connected to %s", address)
		}
	}
	if head := g.ask(http.MethodHead, path+"/volumes/a/disk.img"); head.StatusCode != http.StatusOK || got.Method != http.MethodHead || head.ContentLength != 7 {
		t.Errorf("HEAD: %s, %d bytes", head.Status, head.ContentLength)
	}
	if said := g.log.String(); strings.Contains(said, token) || strings.Contains(said, "query") {
		t.Errorf("the log has the token: %s", said)
	}
}

func names(h http.Header) []string {
	var all []string
	for name := range h {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// TestBody: what a client sends in the body of a request goes nowhere.
func TestBody(t *testing.T) {
	sent := int64(-1)
	g := newRig(t, func(_ http.ResponseWriter, r *http.Request) { sent, _ = io.Copy(io.Discard, r.Body) })
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.base+path+"/volumes/a/disk.img", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := g.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK || sent != 0 {
		t.Errorf("%s, %d bytes", answer.Status, sent)
	}
}

// TestRefused: requests for anything but a ready export reach no server.
func TestRefused(t *testing.T) {
	g := newRig(t, func(http.ResponseWriter, *http.Request) { t.Error("a request was forwarded") })
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions, http.MethodTrace, "PROPFIND"} {
		if answer := g.ask(method, path+"/volumes/a/disk.img"); answer.StatusCode != http.StatusMethodNotAllowed || answer.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %s", method, answer.Status)
		}
	}
	for _, bad := range []string{
		"/", "/healthz", "/metrics", path, path + "/", path + "//", "/volumes/a/disk.img", "/api/v1/namespaces/team/secrets",
		strings.Replace(path, "v1beta1", "v2", 1) + "/volumes/a/disk.img",
		strings.Replace(path, "export.kubevirt.io", "kubevirt.io", 1) + "/volumes/a/disk.img",
		strings.Replace(path, "virtualmachineexports", "virtualmachines", 1) + "/volumes/a/disk.img",
		strings.Replace(path, "team", "..", 1) + "/volumes/a/disk.img",
		strings.Replace(path, "team", "other.team", 1) + "/volumes/a/disk.img",
		strings.Replace(path, "out", "o%75t", 1) + "/volumes/a/disk.img",
		strings.Replace(path, "out", "Out", 1) + "/volumes/a/disk.img",
		path + "/..", path + "/../x", path + "/volumes/../../other/volumes/a/disk.img", path + "/%2e%2e/other", path + "/volumes/a/.%2E",
		path + "/./x", path + "/volumes/a%2f..%2fb", path + "/volumes%2Fa", path + "/volumes/a%00",
	} {
		g.expect(http.StatusBadRequest, bad)
	}
	missing := strings.Replace(path, "/out", "/other", 1) + "/volumes/a/disk.img"
	if got := g.expect(http.StatusNotFound, missing); !strings.Contains(got, "does not exist") {
		t.Errorf("missing: %s", got)
	}
	for name, change := range map[string]func(*api.VirtualMachineExport){
		"no status":     func(e *api.VirtualMachineExport) { e.Status = nil },
		"pending":       func(e *api.VirtualMachineExport) { e.Status.Phase = api.Pending },
		"no links":      func(e *api.VirtualMachineExport) { e.Status.Links = nil },
		"no authority":  func(e *api.VirtualMachineExport) { e.Status.Links.Internal.Cert = "" },
		"other service": func(e *api.VirtualMachineExport) { e.Status.ServiceName = "kubernetes.default" },
		"no service":    func(e *api.VirtualMachineExport) { e.Status.ServiceName = "" },
	} {
		was := g.e.Status.DeepCopy()
		fakecluster.Change(t, g.Cluster, g.e, change)
		answer := g.ask(http.MethodGet, path+"/volumes/a/disk.img")
		if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %s", name, answer.Status)
		}
		fakecluster.Change(t, g.Cluster, g.e, func(e *api.VirtualMachineExport) { e.Status = was })
	}
	if all := g.addresses(); len(all) > 0 {
		t.Errorf("connected to %v", all)
	}
}

// TestCertificate: a server that the export's authority has not signed gets no request, and no token.
func TestCertificate(t *testing.T) {
	g := newRig(t, func(http.ResponseWriter, *http.Request) { t.Error("the server got a request") })
	for name, authority := range map[string][]byte{
		"another authority": newPair(t, service).authority,
	} {
		fakecluster.Change(t, g.Cluster, g.e, func(e *api.VirtualMachineExport) { e.Status.Links.Internal.Cert = string(authority) })
		if got := g.expect(http.StatusBadGateway, path+"/volumes/a/disk.img?"+server.ExportHeader+"=secret-token"); !strings.Contains(got, "does not answer") {
			t.Errorf("%s: %s", name, got)
		}
	}
	if said := g.log.String(); !strings.Contains(said, "export=out") || !strings.Contains(said, "certificate") || strings.Contains(said, "secret-token") {
		t.Errorf("log %s", said)
	}
	// A server with the authority's certificate for another name is another export's.
	p := newPair(t, "virt-export-other.team.svc")
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{p.cert}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}
	}()
	newRigOf(t, l.Addr().String(), p.authority).expect(http.StatusBadGateway, path+"/volumes/a/disk.img")
}

// TestStream: a client gets each part when the server sends it, and an answer that breaks off is no whole.
func TestStream(t *testing.T) {
	next := make(chan struct{})
	g := newRig(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-next
		_, _ = io.WriteString(w, "second")
		if strings.HasSuffix(r.URL.Path, "broken") {
			panic(http.ErrAbortHandler)
		}
	})
	for file, whole := range map[string]bool{"whole": true, "broken": false} {
		answer := g.ask(http.MethodGet, path+"/volumes/a/"+file)
		part := make([]byte, 5)
		if _, err := io.ReadFull(answer.Body, part); err != nil || string(part) != "first" {
			t.Fatalf("%s: %q, %v", file, part, err)
		}
		next <- struct{}{}
		rest, err := io.ReadAll(answer.Body)
		if (err == nil) != whole || whole && string(rest) != "second" {
			t.Errorf("%s: %q, %v", file, rest, err)
		}
	}
}

// TestGone: the connection to the server ends when the client has gone.
func TestGone(t *testing.T) {
	ended := make(chan struct{})
	g := newRig(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(ended)
	})
	answer := g.ask(http.MethodGet, path+"/volumes/a/disk.img")
	_ = answer.Body.Close()
	<-ended
}

// TestRedirect: redirects stay below the export's path, or are dropped.
func TestRedirect(t *testing.T) {
	to := ""
	g := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusMovedPermanently)
	})
	for location, want := range map[string]string{
		"/volumes/a/dir/": path + "/volumes/a/dir/", "dir/": "dir/", "./": "./",
		"https://example.com/": "", "//example.com/": "", `\\example.com`: "", "javascript:alert(1)": "", "": "",
	} {
		to = location
		if got := g.ask(http.MethodGet, path+"/volumes/a/dir").Header.Get("Location"); got != want {
			t.Errorf("%q becomes %q; want %q", location, got, want)
		}
	}
}

// TestBounds: requests with large headers are refused, and so are more downloads of one namespace than
// the bound, until one has ended.
func TestBounds(t *testing.T) {
	end := make(chan struct{})
	g := newRig(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-end:
		case <-r.Context().Done():
		}
	})
	if got := g.ask(http.MethodGet, path+"/volumes/a/disk.img", "Accept", strings.Repeat("a", 64<<10)); got.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("large header: %s", got.Status)
	}
	const most = 64
	for range most {
		if answer := g.ask(http.MethodGet, path+"/volumes/a/disk.img"); answer.StatusCode != http.StatusOK {
			t.Fatal(answer.Status)
		}
	}
	if got := g.expect(http.StatusServiceUnavailable, path+"/volumes/a/disk.img"); !strings.Contains(got, "too many downloads") {
		t.Error(got)
	}
	g.expect(http.StatusNotFound, strings.Replace(path, "team", "others", 1)+"/volumes/a/disk.img")
	end <- struct{}{}
	for {
		answer := g.ask(http.MethodGet, path+"/volumes/a/disk.img")
		if answer.StatusCode == http.StatusOK {
			return
		}
	}
}

// TestServer downloads from the real server of exports, with the token in the header or in the URL.
func TestServer(t *testing.T) {
	dir, folder := t.TempDir(), t.TempDir()
	write := func(content string, path ...string) {
		t.Helper()
		file := filepath.Join(path...)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config, err := json.Marshal(server.Config{Name: "out", Volumes: []server.Volume{{Name: "files", Path: folder}}, Manifests: true, External: "x"})
	if err != nil {
		t.Fatal(err)
	}
	write(string(config), dir, server.ServerFolder, server.FileConfig)
	write(`[{"kind":"Internal"}]`, dir, server.ServerFolder, server.FileManifests)
	write(`[{"kind":"External"}]`, dir, server.ServerFolder, server.FileExternalManifests)
	write(token, dir, server.TokenFolder, server.FileToken)
	write("kept", folder, "a note", "disk.img")
	s, err := server.New(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended, p := make(chan error, 1), newPair(t, service)
	go func() { ended <- s.Serve(ctx, l, p.cert) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	g := newRigOf(t, l.Addr().String(), p.authority)
	const file = path + "/volumes/files/dir//a%20note/disk.img"
	if got := g.expect(http.StatusOK, file, server.ExportHeader, token); got != "kept" {
		t.Errorf("%q", got)
	}
	if got := g.expect(http.StatusOK, file+"?"+server.ExportHeader+"="+strings.ReplaceAll(token, " ", "+")); got != "kept" {
		t.Errorf("with the token in the URL: %q", got)
	}
	g.expect(http.StatusUnauthorized, file)
	g.expect(http.StatusUnauthorized, file, server.ExportHeader, "wrong")
	for from, want := range map[string]string{"internal": "Internal", "external": "External"} {
		if got := g.expect(http.StatusOK, path+"/"+from+"/manifests/all", server.ExportHeader, token); !strings.Contains(got, want) {
			t.Errorf("%s: %s", from, got)
		}
		if got := g.expect(http.StatusOK, path+"/"+from+"/manifests/secret", server.ExportHeader, token); !strings.Contains(got, "header-secret-out") {
			t.Errorf("%s: %s", from, got)
		}
	}
}
