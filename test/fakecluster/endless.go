package fakecluster

import (
	"context"
	"reflect"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// endless is a reader whose lists of a type have no end.
type endless struct {
	client.Reader
	of reflect.Type
}

// Endless returns a reader that reads from another one. Each of its lists of one type is a page without objects, which others
// follow.
func Endless(from client.Reader, of client.ObjectList) client.Reader {
	return endless{from, reflect.TypeOf(of)}
}

func (e endless) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if reflect.TypeOf(list) != e.of {
		return e.Reader.List(ctx, list, options...)
	}
	list.SetContinue("more")
	return nil
}
