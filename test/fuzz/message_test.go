package fuzz

import (
	"math"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"muxpost.dev/muxpost/test/stack"
)

// texts are what strings of requests are often made of: what is right, what nearly is, and what has hurt others.
var texts = []string{
	"", " ", "a", "github:octo/widget#8", "github:octo/widget#9", "GITHUB:Octo/Widget#8", "github:octo/widget#0", "github:octo/widget",
	"github:h.example/octo/widget#8", "loop-octo-widget-8", "loop-", "delivery-1", "d" + strings.Repeat("0", 63), "manual", "widgets", "message",
	"comment", "fakeagent", "no-such-harness", "no-such-host", "../../etc/passwd", "/", "-", "--help", "#{pid}", "%0", "$(id)", "; kill-server",
	"\x00", "a\x00b", "\x1b[201~\r", "\u202e", "\U000e0041", "\ufeff", "\u2028", "é", "e\u0301", "null", "{}", "[]", "'", "\"", "\\", "`", "\r\n",
	"2026-11-30T00:00:00Z", "unix:/nowhere", "127.0.0.1:1", strings.Repeat("x", 200), strings.Repeat("x", 70_000), strings.Repeat("\n", 3000),
}

// usual are what fields of these names usually hold, so that calls come past the first look at them. Nothing here names the bystander.
var usual = map[protoreflect.Name][]string{
	"work_item":         {"github:octo/widget#8", "github:octo/widget#9"},
	"pull":              {"github:octo/widget#10"},
	"delivery_id":       {"fuzzed-delivery-1", "fuzzed-delivery-2"},
	"harness":           {"fakeagent"},
	"conversation_id":   {"0195f0a0-0000-7000-8000-000000000001"},
	"kind":              {"message", "comment"},
	"text":              {"Please go on."},
	"prompt":            {"Please go on."},
	"attempt_id":        {"fuzzed-attempt-1"},
	"name":              {"fuzzed"},
	"who":               {"alice"},
	"reason":            {"tried"},
	"repository":        {"octo/widget"},
	"page_token":        {""},
	"directory":         {"/tmp"},
	"incarnation_stamp": {"0195f0a0000070008000000000000001"},
	"role":              {"read"},
	"source":            {"widgets"},
}

var numbers = []int64{0, 1, 2, -1, 10, 50, 500, 501, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64}

// entropy is what a fuzzer gave, read from its beginning; when it is used up, everything is zero.
type entropy []byte

func (e *entropy) next() byte {
	if len(*e) == 0 {
		return 0
	}
	b := (*e)[0]
	*e = (*e)[1:]
	return b
}

// of returns a number below n, which is at most 256.
func (e *entropy) of(n int) int { return int(e.next()) % n }

func (e *entropy) text(field protoreflect.Name) string {
	if known := usual[field]; len(known) > 0 && e.of(3) != 1 {
		return known[e.of(len(known))]
	}
	if n := e.of(len(texts) + 8); n < len(texts) {
		return texts[n]
	}
	n := min(e.of(64), len(*e))
	s := strings.ToValidUTF8(string((*e)[:n]), "\ufffd")
	*e = (*e)[n:]
	if strings.Contains(s, stack.Item(bystander)) {
		return ""
	}
	return s
}

func (e *entropy) number() int64 {
	if n := e.of(len(numbers) + 4); n < len(numbers) {
		return numbers[n]
	}
	return int64(e.next())<<8 | int64(e.next())
}

// fill sets fields of a message, each to something that its type allows.
func (e *entropy) fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if depth == 0 && f.Message() != nil || e.of(4) == 0 {
			continue
		}
		switch {
		case f.IsMap():
			for range e.of(3) {
				m.Mutable(f).Map().Set(e.value(f.MapKey()).MapKey(), e.value(f.MapValue()))
			}
		case f.IsList():
			list := m.Mutable(f).List()
			for range e.of(4) {
				if f.Message() != nil {
					e.fill(list.AppendMutable().Message(), depth-1)
					continue
				}
				list.Append(e.value(f))
			}
		case f.Message() != nil:
			e.fill(m.Mutable(f).Message(), depth-1)
		default:
			m.Set(f, e.value(f))
		}
	}
}

// value makes one value of a field that is no message.
func (e *entropy) value(f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(e.next()&1 == 1)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(e.of(f.Enum().Values().Len()+2) - 1))
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(e.number()))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(e.number())
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(e.number()))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(uint64(e.number()))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(e.number()))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(e.number()))
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(e.text(f.Name()))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(e.text(f.Name())))
	default:
		return f.Default()
	}
}
