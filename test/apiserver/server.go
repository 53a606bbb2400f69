package apiserver

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/nodevirt/nodevirt/test/daemon"
	"github.com/nodevirt/nodevirt/test/needs"
)

// quota bounds etcd's file in bytes. Between two compactions, many VMs write more than etcd's default.
const quota = 8 << 30

// startTime bounds how long a daemon may take until it serves.
const startTime = 3 * time.Minute

// Server is an API server with a separate etcd.
type Server struct {
	dir, bin         string
	etcdPort, port   int
	etcd, kubernetes *daemon.Daemon
	extra            []string
}

// ForTest starts a server for a test, with further flags, and stops it when the
// test ends.
func ForTest(t testing.TB, flags ...string) *Server {
	t.Helper()
	needs.Parts(t, "kube-apiserver and etcd")
	s, err := Start(t.Context(), t.TempDir(), flags...)
	t.Cleanup(func() {
		s.Close()
		if t.Failed() {
			t.Logf("end of the API server's log:\n%s", s.kubernetes.Tail())
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Start starts a server whose files are in dir, with further flags. Close it also
// when there is an error.
func Start(ctx context.Context, dir string, flags ...string) (*Server, error) {
	bin, err := checkoutBin()
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, bin: bin, extra: flags}
	if err := s.prepare(); err != nil {
		return s, err
	}
	if err := s.startEtcd(ctx); err != nil {
		return s, err
	}
	return s, s.Start(ctx)
}

// Close ends the API server and etcd. Their files stay.
func (s *Server) Close() {
	if s != nil {
		s.kubernetes.Stop()
		s.etcd.Stop()
	}
}

const token = "test-admin"

// Daemons returns etcd and the API server by their names.
func (s *Server) Daemons() map[string]*daemon.Daemon {
	return map[string]*daemon.Daemon{"etcd": s.etcd, "kube-apiserver": s.kubernetes}
}

// Bin returns the folder with the checkout's programs.
func (s *Server) Bin() string { return s.bin }

// Config is of a member of system:masters.
func (s *Server) Config() *rest.Config {
	return &rest.Config{
		Host:            "https://127.0.0.1:" + strconv.Itoa(s.port),
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(s.dir, "pki", "apiserver.crt"), ServerName: "kubernetes"},
		QPS:             -1,
	}
}

// Stop ends the API server; etcd, and so all objects, stay.
func (s *Server) Stop() { s.kubernetes.Stop() }

// Start starts the API server where it was before, and returns when it serves.
func (s *Server) Start(ctx context.Context) error {
	key := filepath.Join(s.dir, "service-account.key")
	args := append([]string{
		"--etcd-servers=http://127.0.0.1:" + strconv.Itoa(s.etcdPort),
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(s.port),
		"--cert-dir=" + filepath.Join(s.dir, "pki"),
		"--token-auth-file=" + filepath.Join(s.dir, "tokens"),
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + key,
		"--service-account-signing-key-file=" + key,
		"--service-cluster-ip-range=10.96.0.0/24",
		// No controller makes service accounts here.
		"--disable-admission-plugins=ServiceAccount",
	}, s.extra...)
	s.kubernetes = daemon.New(filepath.Join(s.bin, "kube-apiserver"), filepath.Join(s.dir, "apiserver.log"), args...)
	if err := s.kubernetes.Start(); err != nil {
		return fmt.Errorf("%w: build it by test/tools/build kubernetes", err)
	}
	return s.kubernetes.Wait(ctx, startTime, s.ready)
}

// ready asks with the certificate that the server has made for itself.
func (s *Server) ready(ctx context.Context) error {
	client, err := rest.HTTPClientFor(s.Config())
	if err != nil {
		return err
	}
	return get(ctx, client, s.Config().Host+"/readyz")
}

func (s *Server) startEtcd(ctx context.Context) error {
	peer, err := FreePort()
	if err != nil {
		return err
	}
	clients := "http://127.0.0.1:" + strconv.Itoa(s.etcdPort)
	peers := "http://127.0.0.1:" + strconv.Itoa(peer)
	s.etcd = daemon.New(filepath.Join(s.bin, "etcd"), filepath.Join(s.dir, "etcd.log"),
		"--data-dir="+filepath.Join(s.dir, "etcd"), "--unsafe-no-fsync", "--quota-backend-bytes="+strconv.Itoa(quota),
		"--listen-client-urls="+clients, "--advertise-client-urls="+clients,
		"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=default="+peers)
	if err := s.etcd.Start(); err != nil {
		return fmt.Errorf("%w: build it by test/tools/build etcd", err)
	}
	return s.etcd.Wait(ctx, startTime, func(ctx context.Context) error { return get(ctx, http.DefaultClient, clients+"/health") })
}

func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// prepare writes what the daemons read.
func (s *Server) prepare() error {
	for _, port := range []*int{&s.etcdPort, &s.port} {
		var err error
		if *port, err = FreePort(); err != nil {
			return err
		}
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if err := os.WriteFile(filepath.Join(s.dir, "service-account.key"), block, 0o600); err != nil {
		return err
	}
	user := token + ",admin,admin,system:masters\n"
	return os.WriteFile(filepath.Join(s.dir, "tokens"), []byte(user), 0o600)
}

// checkoutBin is bin/ beside the go.mod above the working directory, where tests run.
func checkoutBin() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "bin"), nil
		}
	}
	return "", fmt.Errorf("no go.mod above the working directory")
}
