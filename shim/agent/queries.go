package agent

import (
	"context"
	"time"
)

// User is a login session in a guest.
type User struct {
	Name   string
	Domain string // set by Windows guests
	// LoggedIn is when the session began.
	LoggedIn time.Time
}

// Filesystem is a file system that a guest has mounted.
type Filesystem struct {
	Name       string `json:"name"`
	MountPoint string `json:"mountPoint"`
	Type       string `json:"type"`
	// Used and Total are in bytes, 0 if the agent is too old to report them.
	Used  int64  `json:"used,omitempty"`
	Total int64  `json:"total,omitempty"`
	Disks []Disk `json:"disks,omitempty"`
}

// Disk is a disk that holds a file system, as the guest sees it.
type Disk struct {
	Bus    string `json:"bus,omitempty"`
	Serial string `json:"serial,omitempty"`
}

// Bounds of what is kept.
const (
	maxUsers       = 256
	maxFilesystems = 256
	maxDisks       = 32
	maxCommands    = 256
)

// Queries ask the agent about its guest.
type Queries struct {
	agent caller
	cards func() map[string]string
}

// caller runs one command of an agent; [link].
type caller interface {
	// call decodes the answer, of at most limit bytes, into result, which may be nil.
	call(ctx context.Context, command string, arguments any, limit int, result any) error
}

// Ping returns nil if the agent answers.
func (q *Queries) Ping(ctx context.Context) error {
	return q.agent.call(ctx, "guest-ping", nil, smallAnswer, nil)
}

// Users returns the login sessions.
func (q *Queries) Users(ctx context.Context) ([]User, error) {
	var found []struct {
		User   string  `json:"user"`
		Domain string  `json:"domain"`
		Login  float64 `json:"login-time"` // seconds since 1970
	}
	if err := q.agent.call(ctx, "guest-get-users", nil, smallAnswer, &found); err != nil {
		return nil, err
	}
	all := []User{}
	for _, f := range found[:min(len(found), maxUsers)] {
		all = append(all, User{Name: clean(f.User), Domain: clean(f.Domain), LoggedIn: sinceEpoch(f.Login)})
	}
	return all, nil
}

// sinceEpoch converts a guest's time. It returns the zero time for values before
// 1970 or after 2242.
func sinceEpoch(seconds float64) time.Time {
	const latest = 1 << 33
	if !(seconds > 0 && seconds < latest) {
		return time.Time{}
	}
	return time.UnixMicro(int64(seconds * 1e6))
}

// Filesystems returns the file systems that the guest has mounted.
func (q *Queries) Filesystems(ctx context.Context) ([]Filesystem, error) {
	var found []struct {
		Name  string `json:"name"`
		Mount string `json:"mountpoint"`
		Type  string `json:"type"`
		Used  int64  `json:"used-bytes"`
		Total int64  `json:"total-bytes"`
		Disks []struct {
			Bus    string `json:"bus-type"`
			Serial string `json:"serial"`
		} `json:"disk"`
	}
	if err := q.agent.call(ctx, "guest-get-fsinfo", nil, smallAnswer, &found); err != nil {
		return nil, err
	}
	all := []Filesystem{}
	for _, f := range found[:min(len(found), maxFilesystems)] {
		fs := Filesystem{
			Name: clean(f.Name), MountPoint: clean(f.Mount), Type: clean(f.Type), Used: max(f.Used, 0), Total: max(f.Total, 0),
		}
		for _, d := range f.Disks[:min(len(f.Disks), maxDisks)] {
			fs.Disks = append(fs.Disks, Disk{Bus: clean(d.Bus), Serial: clean(d.Serial)})
		}
		all = append(all, fs)
	}
	return all, nil
}

// Timezone returns the guest's time zone: its name, and its offset from UTC in seconds.
func (q *Queries) Timezone(ctx context.Context) (name string, offset int, err error) {
	var answer struct {
		Zone   string `json:"zone"`
		Offset int    `json:"offset"`
	}
	err = q.agent.call(ctx, "guest-get-timezone", nil, smallAnswer, &answer)
	return clean(answer.Zone), answer.Offset, err
}

// Commands returns the commands that the agent knows, and whether its configuration enables them.
func (q *Queries) Commands(ctx context.Context) (map[string]bool, error) {
	i, err := q.info(ctx)
	return i.commands(), err
}

// info is the result of guest-info.
type info struct {
	Version   string `json:"version"`
	Supported []struct {
		Name    string `json:"name"`
		Enabled bool   `json:"enabled"`
	} `json:"supported_commands"`
}

func (q *Queries) info(ctx context.Context) (i info, err error) {
	err = q.agent.call(ctx, "guest-info", nil, smallAnswer, &i)
	return i, err
}

// commands returns whether each command is enabled.
func (i info) commands() map[string]bool {
	all := map[string]bool{}
	for _, c := range i.Supported[:min(len(i.Supported), maxCommands)] {
		all[clean(c.Name)] = c.Enabled
	}
	return all
}
