package config
import ("testing";"strings";"fmt";"time")
func TestZZ(t *testing.T){
 var k,n strings.Builder
 for i:=0;i<16000;i++{fmt.Fprintf(&k,"k%d: v\n",i)}
 for i:=0;i<1400;i++{n.WriteString(strings.Repeat(" ",i)+"a:\n")}
 for name,s:=range map[string]string{"keys":k.String(),"nest":n.String(),"items":strings.Repeat("- a\n",24000),"flow":"["+strings.Repeat("a,",24000)+"]",
  "anch":strings.Repeat("&a [",60),"flowmapdeep":strings.Repeat("a: "+strings.Repeat("{a: ",60)+"1"+strings.Repeat("}",60)+"\n",200),
  "json":"{\"mcpServers\":{"+strings.Repeat("\"a\":{\"command\":\"x\"},",400000)+"}}"}{
  t0:=time.Now(); _,err:=Parse([]byte(s),Options{Path:"x"}); e:=fmt.Sprint(err); if len(e)>100{e=e[:100]}
  fmt.Println(name,len(s),time.Since(t0),e)
 }
}
