//go:build slow

package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/controller/certs"
	"github.com/nodevirt/nodevirt/controller/export/server"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

// pulledBackup is a VM with the pod that reads its backups. The export's server runs in the test.
type pulledBackup struct {
	*backedUp
	reader *container
	folder string // the pod's emptyDir
	client *http.Client
	base   string
	// config is the folder of the server's files.
	config string
	// first is the container with the volume of the other backups.
	first *container
}

const pullToken = "correct horse"

func pullPods(t *testing.T, suffix string, size int64) *pulledBackup {
	t.Helper()
	p := &pulledBackup{backedUp: backUpPods(t, suffix, size)}
	p.folder = filepath.Join(filepath.Dir(p.backedUp.folder), "kubernetes.io~empty-dir", "socket")
	assert.NilError(t, os.MkdirAll(p.folder, 0o777))
	p.first = p.volumes
	p.readers(t, "first")
	now := time.Now()
	const name = "virt-export-out.default.svc"
	authority, cert, key, err := certs.ForServer([]string{name}, now, now.Add(time.Hour))
	assert.NilError(t, err)
	pair, err := tls.X509KeyPair(cert, key)
	assert.NilError(t, err)
	p.config = t.TempDir()
	p.write(t, server.TokenFolder, server.FileToken, []byte(pullToken))
	p.changes(t, "")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	p.base = "https://" + l.Addr().String()
	p.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: name}, DisableKeepAlives: true}}
	s := &http.Server{Handler: http.HandlerFunc(p.handle), ReadHeaderTimeout: time.Minute, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}}
	go func() { _ = s.ServeTLS(l, "", "") }()
	t.Cleanup(func() { _ = s.Close() })
	return p
}

// handle serves a request as the pod does. Each backup has another config.
func (p *pulledBackup) handle(w http.ResponseWriter, r *http.Request) {
	s, err := server.New(p.config, slog.New(slog.NewTextHandler(p.t.Output(), nil)))
	if err != nil {
		panic(err)
	}
	defer s.Close()
	s.Handler().ServeHTTP(w, r)
}

func (p *pulledBackup) write(t *testing.T, folder, file string, content []byte) {
	t.Helper()
	assert.NilError(t, os.MkdirAll(filepath.Join(p.config, folder), 0o755))
	assert.NilError(t, os.WriteFile(filepath.Join(p.config, folder, file), content, 0o600))
}

// changes configures the server for a backup with a context of changes, or a full one.
func (p *pulledBackup) changes(t *testing.T, context string) {
	t.Helper()
	text, err := json.Marshal(server.Config{Name: "out", Backup: &server.Backup{
		Socket: filepath.Join(p.folder, order.SocketFile), Changes: context, Volumes: []string{"files", "raw"},
	}})
	assert.NilError(t, err)
	p.write(t, server.ServerFolder, server.FileConfig, text)
}

// readers starts the pod that reads.
func (p *pulledBackup) readers(t *testing.T, suffix string) {
	t.Helper()
	attachment := runPod(t, "", named("readers-"+suffix), annotated(map[string]string{"nodevirt.io/attachment": p.pod.config.Metadata.Uid}))
	config := attachment.newContainer("exporter", suite.busybox)
	config.Command = []string{"sleep", "1000000"}
	config.Mounts = append(config.Mounts, &runtimeapi.Mount{ContainerPath: "/run/" + order.SocketVolume, HostPath: p.folder, Readonly: true})
	p.reader = attachment.create(config).start()
}

// pull begins a pull backup, and has it served.
func (p *pulledBackup) pull(t *testing.T, name, since string, keep ...string) order.Backup {
	t.Helper()
	request := p.request(name, since)
	request.Pull, request.Keep = true, keep
	var answer order.Backup
	wait.Success(t, "backup "+name+" is ready", func(context.Context) (err error) {
		if answer, err = p.order(order.BackUp, request); err == nil && answer.State != order.BackupReady {
			err = fmt.Errorf("%+v", answer)
		}
		return err
	})
	answer, err := p.order(order.BackupServe, order.BackupReaders{Name: name, Container: p.reader.id})
	assert.NilError(t, err)
	assert.Equal(t, answer.Readers, p.reader.id)
	p.changes(t, map[bool]string{true: order.ChangesContext}[answer.Incremental])
	return answer
}

func (p *pulledBackup) ask(t *testing.T, token, path string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.base+path, nil)
	assert.NilError(t, err)
	r.Header.Set("x-kubevirt-export-token", token)
	answer, err := p.client.Do(r)
	assert.NilError(t, err)
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

func (p *pulledBackup) get(t *testing.T, path string) []byte {
	t.Helper()
	answer := p.ask(t, pullToken, path)
	body, err := io.ReadAll(answer.Body)
	assert.NilError(t, err)
	assert.Equal(t, answer.StatusCode, http.StatusOK, "%s: %s", path, body)
	return body
}

// increment applies what has changed of a disk to a copy, page by page, and returns how many bytes that was.
func (p *pulledBackup) increment(t *testing.T, disk string, copied []byte) (n int) {
	t.Helper()
	query := "?page_size=2"
	for query != "" {
		var page struct {
			Extents []struct {
				Offset, Length int
				Type           int
			} `json:"extents"`
			Next *int `json:"next_offset"`
		}
		assert.NilError(t, json.Unmarshal(p.get(t, "/exports/"+disk+"/map"+query), &page))
		for _, e := range page.Extents {
			if e.Type&1 == 0 {
				continue
			}
			content := p.get(t, fmt.Sprintf("/exports/%s/data?offset=%d&length=%d", disk, e.Offset, e.Length))
			n += copy(copied[e.Offset:], content)
		}
		if query = ""; page.Next != nil {
			query = fmt.Sprintf("?page_size=2&offset=%d", *page.Next)
		}
	}
	return n
}

// finish completes a pull backup.
func (p *pulledBackup) finish(t *testing.T, name string) {
	t.Helper()
	var answer order.Backup
	wait.Success(t, "backup "+name+" is complete", func(context.Context) (err error) {
		if answer, err = p.order(order.BackupFinish, order.Name{Name: name}); err == nil && answer.State != order.BackupCompleted {
			err = fmt.Errorf("%+v", answer)
		}
		return err
	})
	p.nothing(t, name)
}

// nothing checks that a backup has left no file, and has no readers.
func (p *pulledBackup) nothing(t *testing.T, name string) {
	t.Helper()
	wait.Until(t, "nothing is left of backup "+name, func() bool {
		_, err := os.Lstat(filepath.Join(p.backedUp.folder, "vm", name))
		return os.IsNotExist(err)
	})
	assert.Equal(t, p.ask(t, pullToken, "/exports/files/data").StatusCode, http.StatusServiceUnavailable)
}

// same compares copies with the disks.
func (p *pulledBackup) same(t *testing.T, copies map[string][]byte) {
	t.Helper()
	p.wantExec("", "", 0, "sync")
	for disk, path := range map[string]string{"files": p.files, "raw": p.device} {
		content, err := os.ReadFile(path)
		assert.NilError(t, err)
		assert.Equal(t, sha256.Sum256(content), sha256.Sum256(copies[disk]), disk)
	}
}

// TestPull: a client reads the disks as they were when the backup began, and later what has changed since:
// at most 1.1 times the bytes that the guest has written. Both together are the disks. A wrong token
// gets nothing, and another pod takes the readers' place.
func TestPull(t *testing.T) {
	t.Parallel()
	p := pullPods(t, "pull", 32*mebibyte)
	p.dirty(0, 4*mebibyte)
	answer := p.pull(t, "full", "")
	assert.Assert(t, !answer.Incremental && answer.Warning == "", "%+v", answer)
	assert.Equal(t, answer.Quiesce, order.QuiesceSucceeded)
	before, err := os.ReadFile(p.files)
	assert.NilError(t, err)
	p.dirty(2*mebibyte, 2*mebibyte) // after the backup, and before it is read
	copies := map[string][]byte{}
	for _, disk := range []string{"files", "raw"} {
		assert.Equal(t, p.ask(t, "wrong", "/exports/"+disk+"/data").StatusCode, http.StatusUnauthorized)
		copies[disk] = p.get(t, "/exports/"+disk+"/data")
	}
	assert.Assert(t, bytes.Equal(copies["files"], before), "the client read what the guest wrote after the backup")
	p.readers(t, "second")
	_, err = p.order(order.BackupServe, order.BackupReaders{Name: "full", Container: p.reader.id})
	assert.NilError(t, err)
	assert.Equal(t, len(p.get(t, "/exports/files/data?length=512")), 512)
	p.finish(t, "full")
	assert.Equal(t, p.ask(t, pullToken, "/exports/files/data").StatusCode, http.StatusServiceUnavailable)

	p.dirty(16*mebibyte, 4*mebibyte)
	const written = 6 * mebibyte // with what was written during the full backup
	assert.Assert(t, p.pull(t, "first", "full").Incremental)
	for disk, copied := range copies {
		if n := p.increment(t, disk, copied); n > written*11/10 || n < written {
			t.Errorf("the client read %d bytes of %s, for %d that were written", n, disk, written)
		}
	}
	p.finish(t, "first")
	p.same(t, copies)
}

// TestPullFaults is not parallel: all tests share the shim. A download goes on while the shim is gone. A
// backup that is cancelled, and one whose QEMU is killed, end their downloads, which no client takes for whole,
// and leave nothing.
func TestPullFaults(t *testing.T) {
	p := pullPods(t, "pull-faults", 256*mebibyte)
	p.pull(t, "killed", "")
	answer := p.ask(t, pullToken, "/exports/files/data")
	assert.Equal(t, answer.StatusCode, http.StatusOK)
	first := make([]byte, mebibyte)
	_, err := io.ReadFull(answer.Body, first)
	assert.NilError(t, err)
	assert.NilError(t, suite.Kill(t.Context(), node.Shim, syscall.SIGKILL))
	rest, err := io.ReadAll(answer.Body)
	assert.NilError(t, err)
	assert.Equal(t, len(rest), 255*mebibyte)
	assert.NilError(t, suite.Resume(t.Context(), node.Shim))
	p.finish(t, "killed")
	want, err := os.ReadFile(p.files)
	assert.NilError(t, err)
	assert.Assert(t, bytes.Equal(append(first, rest...), want))

	ends := func(name string, end func()) {
		t.Helper()
		answer := p.ask(t, pullToken, "/exports/files/data")
		assert.Equal(t, answer.StatusCode, http.StatusOK)
		_, err := io.ReadFull(answer.Body, first)
		assert.NilError(t, err)
		end()
		n, err := io.Copy(io.Discard, answer.Body)
		assert.Assert(t, err != nil && n < 255*mebibyte, "%s: %d bytes, %v", name, n, err)
		p.nothing(t, name)
	}
	assert.Assert(t, p.pull(t, "cancelled", "killed").Incremental)
	ends("cancelled", func() {
		t.Helper()
		cancelled, err := p.order(order.BackupCancel, order.Name{Name: "cancelled"})
		assert.NilError(t, err)
		assert.Assert(t, cancelled.State == order.BackupFailed && strings.Contains(cancelled.Message, "cancelled"), "%+v", cancelled)
	})
	assert.Assert(t, p.pull(t, "again", "killed").Incremental, "the checkpoint before stays")
	ends("again", func() {
		inNode(t, "kill", "-9", fmt.Sprint(p.pid()))
		p.container.ended()
	})
}

// TestPullFull: a guest that overwrites more than the volume has room for stops, until the backup has
// failed. Then it goes on, and has lost no write.
func TestPullFull(t *testing.T) {
	t.Parallel()
	p := pullPods(t, "pull-full", 64*mebibyte)
	full, _ := p.backUp("full", "")
	folder := filepath.Join(filepath.Dir(p.backedUp.folder), "small")
	assert.NilError(t, os.MkdirAll(folder, 0o755))
	inNode(t, "mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", folder)
	t.Cleanup(func() {
		_, err := suite.Output(context.Background(), "umount", "--lazy", folder)
		assert.NilError(t, err)
	})
	attachment := runPod(t, "", named("small"), annotated(map[string]string{"nodevirt.io/attachment": p.pod.config.Metadata.Uid}))
	config := attachment.newContainer("volumes", suite.busybox)
	config.Command = []string{"sleep", "1000000"}
	config.Mounts = append(config.Mounts, &runtimeapi.Mount{ContainerPath: "/volumes/small", HostPath: folder})
	p.volumes = attachment.create(config).start()
	p.volume = "small"
	p.pull(t, "small", "full")
	p.wantExec("", "", 0, "sh", "-c", "dd if=/dev/urandom of=/dev/vdb bs=1M count=64 oflag=direct conv=notrunc,fsync 2>/dev/null")
	answer := p.ended("small")
	assert.Equal(t, answer.State, order.BackupFailed)
	assert.Assert(t, strings.Contains(answer.Message, "nearly full"), answer.Message)
	p.nothing(t, "small")
	assert.Equal(t, inNode(t, "ls", folder), "")
	p.volume, p.volumes = "backups", p.first
	again, answer := p.backUp("again", "full")
	assert.Assert(t, answer.Incremental, "%+v", answer)
	p.equal(full, again)
}
