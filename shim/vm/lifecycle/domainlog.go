package lifecycle

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/layout"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

// Bounds of a domain's log. QEMU writes its complaints there, and a guest can make
// it complain without end.
const (
	// maxDomainLog is the size, in bytes, above which a log is cut.
	maxDomainLog = 1 << 20
	// keepDomainLog is what stays of its beginning: QEMU's command line, and the
	// first complaints.
	keepDomainLog = 512 << 10
	// domainLogPause is the time between two looks at the logs, and floodPause that
	// after a look that found one to cut.
	domainLogPause = time.Second
	floodPause     = 100 * time.Millisecond
)

// domainLogs cuts the logs of running domains.
type domainLogs struct {
	table  *table.Table
	layout layout.Layout
	log    *slog.Logger
}

// run cuts logs until ctx ends.
func (d *domainLogs) run(ctx context.Context) {
	for {
		pause := domainLogPause
		if d.cutAll() {
			pause = floodPause
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// cutAll cuts the logs that are too large. It reports whether there were any.
func (d *domainLogs) cutAll() (some bool) {
	for _, v := range d.table.All("") {
		r := v.Record()
		if r.State != record.Running {
			continue
		}
		path := d.layout.DomainLog(r.Domain.Name)
		cut, err := cutLog(path)
		if err != nil {
			table.Logger(d.log, r).Error("cutting QEMU's log failed", "path", path, "error", err)
		}
		some = some || cut > 0
	}
	return some
}

// cutLog removes what a log has beyond its beginning if it is too large, and
// returns how many bytes that were. libvirtd and QEMU append to the log, so they
// continue where it ends.
func cutLog(path string) (int64, error) {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil || !st.Mode().IsRegular() || st.Size() <= maxDomainLog {
		return 0, err
	}
	return st.Size() - keepDomainLog, os.Truncate(path, keepDomainLog)
}
