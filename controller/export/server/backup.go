package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"syscall"
	"time"

	api "kubevirt.io/api/export/v1"

	"github.com/nodevirt/nodevirt/imageunpack/nbd"
)

// Backup is a backup of a running VM, whose disks the VM's node serves by NBD.
type Backup struct {
	// Socket is the path of the node's socket.
	Socket string `json:"socket"`
	// Changes is the NBD context of what has changed since the backup before; "" for a full backup.
	Changes string `json:"changes,omitempty"`
	// Volumes are the names of the disks.
	Volumes []string `json:"volumes"`
}

// Endpoints returns the paths of a volume in a backup. They are KubeVirt's.
func Endpoints(volume string) map[api.ExportBackupEndpoint]string {
	of := func(what string) string { return path.Join("/exports", volume, what) }
	return map[api.ExportBackupEndpoint]string{api.Map: of("map"), api.Data: of("data")}
}

const (
	// chunk is how much of a disk is read at once, in bytes.
	chunk = 1 << 20
	// defaultPage is KubeVirt's number of extents in an answer, and maxPage the most that a client gets.
	defaultPage = 512
	maxPage     = 16 << 10
	// dialTimeout bounds the connection to the node.
	dialTimeout = 5 * time.Second
	// maxStatuses bounds the requests to the node for one answer: a longer one goes on in the next.
	maxStatuses = 1024
)

// errRange refuses a part that the disk does not have.
var errRange = errors.New("offset, length or page_size is no such part of the disk")

// backupHandlers returns the handlers of a backup's paths.
func (s *Server) backupHandlers() map[string]handler {
	all := map[string]handler{}
	if s.config.Backup == nil {
		return all
	}
	for _, name := range s.config.Backup.Volumes {
		paths := Endpoints(name)
		all[paths[api.Data]] = s.ofBackup(name, serveData)
		all[paths[api.Map]] = s.ofBackup(name, serveMap, s.contexts()...)
	}
	return all
}

// contexts returns the NBD contexts of a map.
func (s *Server) contexts() []string {
	all := []string{nbd.ContextAllocation}
	if c := s.config.Backup.Changes; c != "" {
		all = append(all, c)
	}
	return all
}

// part is what a request asks for.
type part struct {
	disk           *nbd.Client
	offset, length int64
	page           int
	// changes is the context of changes; "" for none.
	changes string
}

// ofBackup opens a disk for each request.
func (s *Server) ofBackup(volume string, serve func(part, http.ResponseWriter, *http.Request) error, contexts ...string) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		conn, err := dial(r.Context(), s.config.Backup.Socket)
		if err != nil {
			s.noBackup(w, volume, err)
			return nil
		}
		defer conn.Close()
		p := part{changes: s.config.Backup.Changes}
		if p.disk, err = nbd.Open(conn, volume, contexts...); ended(err) {
			s.noBackup(w, volume, err)
			return nil
		} else if err != nil {
			return err
		}
		if err := p.ask(r.URL.Query()); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return nil
		}
		return serve(p, w, r)
	}
}

// noBackup has a client try again.
func (s *Server) noBackup(w http.ResponseWriter, volume string, err error) {
	s.log.Error("no backup", "volume", volume, "err", err)
	w.Header().Set("Retry-After", "5")
	http.Error(w, "the VM's node does not serve the backup: it is not ready, or has ended", http.StatusServiceUnavailable)
}

// ended reports whether an error is the end of a connection, which the node had accepted.
func ended(err error) bool {
	return slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, syscall.EPIPE, syscall.ECONNRESET},
		func(end error) bool { return errors.Is(err, end) })
}

// dial connects to the node. A node that sends nothing for [stall] loses the connection.
func dial(ctx context.Context, socket string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("connect to the VM's node: %w", err)
	}
	return patient{conn}, nil
}

// patient is a connection that waits for [stall] at most.
type patient struct{ net.Conn }

func (p patient) Read(b []byte) (int, error) {
	if err := p.SetReadDeadline(time.Now().Add(stall)); err != nil {
		return 0, err
	}
	return p.Conn.Read(b)
}

func (p patient) Write(b []byte) (int, error) {
	if err := p.SetWriteDeadline(time.Now().Add(stall)); err != nil {
		return 0, err
	}
	return p.Conn.Write(b)
}

// ask reads the part of the disk that a request is about: as with KubeVirt, no length, or one that is
// too large, means all that follows.
func (p *part) ask(query url.Values) error {
	number := func(name string, value, most int64) (int64, error) {
		text := query.Get(name)
		if text == "" {
			return value, nil
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return 0, fmt.Errorf("%w: %s %.40q", errRange, name, text)
		}
		return min(n, most), nil
	}
	size := p.disk.Size()
	var err error
	if p.offset, err = number("offset", 0, size); err != nil {
		return err
	}
	if p.offset == size && size > 0 {
		return fmt.Errorf("%w: the disk has %d bytes", errRange, size)
	}
	left := size - p.offset
	if p.length, err = number("length", left, left); err != nil {
		return err
	}
	if p.length == 0 {
		p.length = left
	}
	page, err := number("page_size", defaultPage, maxPage)
	if err == nil && page == 0 {
		err = fmt.Errorf("%w: page_size 0", errRange)
	}
	p.page = int(page)
	return err
}

// serveData serves a part of a disk. A client that gets less than the header says knows that the
// backup has ended.
func serveData(p part, w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(p.length, 10))
	if r.Method == http.MethodHead {
		return nil
	}
	buffer := make([]byte, min(chunk, p.length))
	for end := p.offset + p.length; p.offset < end; {
		if err := r.Context().Err(); err != nil {
			return err
		}
		piece := buffer[:min(int64(len(buffer)), end-p.offset)]
		if err := p.disk.Read(piece, p.offset); err != nil {
			return err
		}
		if _, err := w.Write(piece); err != nil {
			return err
		}
		p.offset += int64(len(piece))
	}
	return nil
}

// extent and page are KubeVirt's answer of a map.
type extent struct {
	Offset      int64  `json:"offset"`
	Length      int64  `json:"length"`
	Type        uint32 `json:"type"`
	Description string `json:"description"`
}

type page struct {
	Extents []extent `json:"extents"`
	// Next is where the next page begins; nil after the last one.
	Next *int64 `json:"next_offset"`
}

// serveMap serves which parts of a disk have data, or have changed.
func serveMap(p part, w http.ResponseWriter, r *http.Request) error {
	answer, err := p.extents(r.Context())
	if err != nil {
		return err
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("encode the map: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, err = w.Write(text)
	return err
}

// extents returns a page of extents.
func (p part) extents(ctx context.Context) (page, error) {
	answer := page{Extents: []extent{}}
	at, end := p.offset, p.offset+p.length
	for n := 0; at < end; n++ {
		if n == maxStatuses {
			answer.Next = &at
			return answer, nil
		}
		if err := ctx.Err(); err != nil {
			return page{}, err
		}
		statuses, err := p.disk.Status(at, end-at)
		if err != nil {
			return page{}, err
		}
		for _, e := range p.merge(statuses) {
			if next := answer.add(at, e, p.describe, p.page); next {
				answer.Next = &at
				return answer, nil
			}
			at += e.Length
		}
	}
	return answer, nil
}

// add adds an extent, or reports that the page is full. Neighbours of one status are one extent.
func (a *page) add(at int64, e nbd.Extent, describe func(uint32) string, most int) (full bool) {
	if n := len(a.Extents); n > 0 && a.Extents[n-1].Type == e.Flags {
		a.Extents[n-1].Length += e.Length
		return false
	}
	if len(a.Extents) == most {
		return true
	}
	a.Extents = append(a.Extents, extent{Offset: at, Length: e.Length, Type: e.Flags, Description: describe(e.Flags)})
	return false
}

// merge returns the extents of both contexts as KubeVirt has them: without a context of changes the
// flags of the content, with one whether a part has changed, and whether it is zeros.
func (p part) merge(all map[string][]nbd.Extent) []nbd.Extent {
	content := all[nbd.ContextAllocation]
	if p.changes == "" {
		return content
	}
	changes := all[p.changes]
	var merged []nbd.Extent
	for len(content) > 0 && len(changes) > 0 {
		e := nbd.Extent{
			Length: min(content[0].Length, changes[0].Length),
			Flags:  content[0].Flags&nbd.Zero | changes[0].Flags&nbd.Dirty,
		}
		merged = append(merged, e)
		content, changes = skip(content, e.Length), skip(changes, e.Length)
	}
	return merged
}

// skip returns extents without their first bytes, which are of the first extent.
func skip(all []nbd.Extent, length int64) []nbd.Extent {
	if all[0].Length == length {
		return all[1:]
	}
	all[0].Length -= length
	return all
}

// describe returns KubeVirt's words for flags.
func (p part) describe(flags uint32) string {
	words := map[uint32]string{0: "data", nbd.Hole: "hole", nbd.Zero: "zero", nbd.Hole | nbd.Zero: "hole,zero"}
	if p.changes != "" {
		words = map[uint32]string{0: "clean", nbd.Dirty: "dirty", nbd.Zero: "zero", nbd.Dirty | nbd.Zero: "dirty,zero"}
	}
	if text, known := words[flags]; known {
		return text
	}
	return "unknown"
}
