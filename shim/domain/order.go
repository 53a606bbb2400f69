package domain

import (
	"context"

	"github.com/nodevirt/nodevirt/internal/bounds"
	"github.com/nodevirt/nodevirt/internal/turns"
)

const (
	// MaxOrders is how many calls that users order run at once on a node. libvirtd has 20 workers by default: the others
	// are for starts, stops, and what the shim itself asks.
	MaxOrders = bounds.Orders
	// NamespaceOrders is how many of these are of one namespace.
	NamespaceOrders = bounds.NamespaceOrders
)

func newOrders() *turns.Turns {
	return turns.New("calls to libvirtd of others", MaxOrders, NamespaceOrders)
}

// orderKey is the key of the namespace in the contexts of ordered calls.
type orderKey struct{}

// Ordered returns a context for the calls to libvirtd that a user of a namespace orders, such as screenshots. They wait
// for each other, so that no number of them keeps VMs from starting or stopping.
func Ordered(ctx context.Context, namespace string) context.Context {
	return context.WithValue(ctx, orderKey{}, namespace)
}

// enter waits until a call may begin. The call leaves when libvirtd has answered.
func (c *Connection) enter(ctx context.Context) (leave func(), err error) {
	namespace, ordered := ctx.Value(orderKey{}).(string)
	if !ordered {
		return func() {}, nil
	}
	return c.orders.Take(ctx, namespace, func() {})
}
