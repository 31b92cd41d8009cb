package specfile

import (
	"strings"
	"testing"
)

func TestJSON_IsTheFileWithItsTimesAsTheContractHasThem(t *testing.T) {
	got, err := JSON([]byte("team: crew\nlimit: 1h30m\nstall: 90\ntasks: [{id: a}]\n"), "limit", "stall")
	if want := `{"limit":"5400.000000000s","stall":90,"tasks":[{"id":"a"}],"team":"crew"}`; err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
	for text, want := range map[string]string{"a: 1\na: 2": "already defined", "limit: soon": "write a time", "- a": "cannot unmarshal", "a: [": "did not find",
		strings.Repeat("a", Max+1): "more than"} {
		if _, err := JSON([]byte(text), "limit"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}
