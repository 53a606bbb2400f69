package migration

import (
	"os"
	"testing"

	"github.com/nodevirt/nodevirt/test/bindingplugin"
)

func TestMain(m *testing.M) {
	bindingplugin.Main()
	os.Exit(m.Run())
}
