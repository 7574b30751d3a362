package tool

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestJoinNeed(t *testing.T) {
	for _, c := range []struct {
		join Join
		of   int
		want int
		ok   bool
	}{
		{"", 3, 3, true},
		{JoinAll, 3, 3, true},
		{JoinAll, 0, 0, true},
		{JoinAny, 3, 1, true},
		{JoinAny, 0, 0, true},
		{JoinAvailable, 3, 0, true},
		{"2", 3, 2, true},
		{"4", 3, 4, true}, // more than there are: the plan's business
		{"0", 3, 0, false},
		{"-1", 3, -1, false},
		{"02", 3, 2, false},
		{"+2", 3, 2, false},
		{"1e1", 3, 0, false},
		{"most", 3, 0, false},
		{"ALL", 3, 0, false},
		{"99999999999999999999", 3, 0, false},
	} {
		need, ok := c.join.Need(c.of)
		if ok != c.ok || ok && need != c.want {
			t.Errorf("Join(%q).Need(%d) = %d, %t, want %d, %t", c.join, c.of, need, ok, c.want, c.ok)
		}
	}
}

func TestJoinJSON(t *testing.T) {
	for _, c := range []struct {
		text string
		want Join
		bad  bool
	}{
		{text: `2`, want: "2"},
		{text: `-2`, want: "-2"},
		{text: `"2"`, want: "2"},
		{text: `"any"`, want: JoinAny},
		{text: `"\u0061ll"`, want: JoinAll},
		{text: `null`, want: ""},
		{text: `true`, bad: true},
		{text: `["all"]`, bad: true},
		{text: `{}`, bad: true},
		{text: `"` + strings.Repeat("x", 33) + `"`, bad: true},
	} {
		var call struct{ Join Join }
		err := json.Unmarshal([]byte(`{"join":`+c.text+`}`), &call)
		if (err != nil) != c.bad || call.Join != c.want {
			t.Errorf("join %s = %q, %v, want %q, bad %t", c.text, call.Join, err, c.want, c.bad)
		}
		if err != nil && len(err.Error()) > 120 {
			t.Errorf("join %s: an error of %d bytes", c.text, len(err.Error()))
		}
	}
	if b, err := json.Marshal(Call{Join: "2"}); err != nil || !strings.Contains(string(b), `"join":"2"`) {
		t.Errorf("Marshal(join 2) = %s, %v", b, err)
	}
}
