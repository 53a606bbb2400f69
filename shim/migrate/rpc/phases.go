package rpc

import (
	"context"
	"errors"
	"fmt"
)

// Flags are libvirt's virDomainMigrateFlags.
type Flags uint32

// The flags of a migration.
const (
	// Live lets the guest run while its memory is copied.
	Live Flags = 1
	// Paused leaves the guest paused on the target after Finish.
	Paused Flags = 1 << 5
	// CopyDisks copies what the guest has written to its disks. For the source and the
	// target.
	CopyDisks Flags = 1 << 7
	// Protected keeps other clients from changing the domain from Begin to Confirm. For
	// the source alone.
	Protected Flags = 1 << 8
	// Unsafe skips libvirt's check of the disks' caches, which trusts only network file
	// systems. For the source alone.
	Unsafe Flags = 1 << 9
	// Converge slows the guest down if it writes memory faster than it is copied.
	Converge Flags = 1 << 13
)

// finishedCancelled is VIR_ERR_MIGRATE_FINISH_OK: a cancelled Finish has no domain to
// return, and succeeds with this error.
const finishedCancelled = 93

// Domain names a domain.
type Domain struct {
	Name string
	UUID [16]byte
}

// Parameters are libvirt's parameters of a migration. Empty ones are not sent.
type Parameters struct {
	// DestinationXML is the target's domain.
	DestinationXML string
	// DestinationName is the domain's name on the target.
	DestinationName string
	// URI is where the memory goes, and DisksURI where disks go: unix:///PATH.
	URI, DisksURI string
	// Disks are the targets, such as vda, of the disks that are copied.
	Disks []string
	// Bandwidth is in MiB/s.
	Bandwidth uint64
}

// The types of parameters.
const (
	typeUnsignedLong = 4
	typeString       = 7
)

func (p Parameters) encode(e *encoder) {
	type text struct{ name, value string }
	texts := []text{
		{"destination_xml", p.DestinationXML}, {"destination_name", p.DestinationName},
		{"migrate_uri", p.URI}, {"disks_uri", p.DisksURI},
	}
	for _, d := range p.Disks {
		texts = append(texts, text{"migrate_disks", d})
	}
	var all encoder
	n := uint32(0)
	for _, t := range texts {
		if t.value != "" {
			n++
			all.string(t.name)
			all.uint(typeString)
			all.string(t.value)
		}
	}
	if p.Bandwidth != 0 {
		n++
		all.string("bandwidth")
		all.uint(typeUnsignedLong)
		all.long(p.Bandwidth)
	}
	e.uint(n)
	*e = append(*e, all...)
}

func (d Domain) encode(e *encoder) {
	e.string(d.Name)
	e.fixed(d.UUID[:])
	e.uint(^uint32(0)) // no ID: libvirtd looks at the UUID
}

// Begin starts the migration at the source's libvirtd. It returns the cookie for
// Prepare.
func (c *Conn) Begin(ctx context.Context, d Domain, p Parameters, f Flags) (cookie []byte, err error) {
	var e encoder
	d.encode(&e)
	p.encode(&e)
	e.uint(uint32(f))
	// The domain's XML follows the cookie. It is the one that was given.
	return c.cookie(ctx, "begin", d.Name, procBegin, e)
}

// Prepare starts QEMU at the target's libvirtd. It returns the cookie for Perform. The
// domain must be defined, with its FD groups associated, until Prepare returns.
func (c *Conn) Prepare(ctx context.Context, p Parameters, cookie []byte, f Flags) ([]byte, error) {
	var e encoder
	p.encode(&e)
	e.opaque(cookie)
	e.uint(uint32(f))
	return c.cookie(ctx, "prepare", p.DestinationName, procPrepare, e)
}

// Perform copies the guest from the source. It returns when the guest is stopped and
// copied, with the cookie for Finish.
func (c *Conn) Perform(ctx context.Context, d Domain, p Parameters, cookie []byte, f Flags) ([]byte, error) {
	var e encoder
	d.encode(&e)
	e.optional("") // no other libvirtd
	p.encode(&e)
	e.opaque(cookie)
	e.uint(uint32(f))
	return c.cookie(ctx, "perform", d.Name, procPerform, e)
}

// Finish completes the guest on the target, or ends QEMU if the migration is cancelled.
// It returns the cookie for Confirm.
func (c *Conn) Finish(ctx context.Context, name string, cookie []byte, f Flags, cancelled bool) ([]byte, error) {
	var e encoder
	Parameters{DestinationName: name}.encode(&e)
	e.opaque(cookie)
	e.uint(uint32(f))
	e.uint(boolean(cancelled))
	answer, err := c.call(ctx, procFinish, e)
	if failure, ok := errors.AsType[*Error](err); ok && cancelled && failure.Code == finishedCancelled {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("finish migration of domain %s: %w", name, err)
	}
	answer.opaque() // the domain's name
	answer.take(16) // its UUID
	answer.uint()   // its ID
	cookie = answer.opaque()
	return cookie, answer.err
}

// Confirm ends QEMU on the source, or resumes the guest if the migration is cancelled.
func (c *Conn) Confirm(ctx context.Context, d Domain, p Parameters, cookie []byte, f Flags, cancelled bool) error {
	var e encoder
	d.encode(&e)
	p.encode(&e)
	e.opaque(cookie)
	e.uint(uint32(f))
	e.uint(boolean(cancelled))
	if _, err := c.call(ctx, procConfirm, e); err != nil {
		return fmt.Errorf("confirm migration of domain %s: %w", d.Name, err)
	}
	return nil
}

// Abort ends a Perform in progress on another connection. libvirtd returns an error if
// there is none.
func (c *Conn) Abort(ctx context.Context, d Domain) error {
	var e encoder
	d.encode(&e)
	if _, err := c.call(ctx, procAbortJob, e); err != nil {
		return fmt.Errorf("abort migration of domain %s: %w", d.Name, err)
	}
	return nil
}

// cookie calls a phase whose answer begins with a cookie.
func (c *Conn) cookie(ctx context.Context, phase, name string, procedure uint32, e encoder) ([]byte, error) {
	answer, err := c.call(ctx, procedure, e)
	if err != nil {
		return nil, fmt.Errorf("%s migration of domain %s: %w", phase, name, err)
	}
	cookie := answer.opaque()
	return cookie, answer.err
}

func boolean(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
