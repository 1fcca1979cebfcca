"""The words of students' phones in four languages; whatever a lecturer writes stays as it is.

A phone takes the first of its browser's languages that is here, and has a switch. Mistakes go by the kinds of
`quantcore.prediction.Mark`.
"""

import json
from typing import NamedTuple

LANGUAGES = {"en": "English", "es": "Español", "zh": "中文", "ko": "한국어"}


class Words(NamedTuple):
    """One text in every language."""

    en: str
    es: str
    zh: str
    ko: str


FIXED = {
    "class": Words("Class", "Clase", "课堂", "수업"),
    "language": Words("Language", "Idioma", "语言", "언어"),
    "enter": Words(
        "The code on the projector", "El código del proyector", "投影屏幕上的代码", "화면에 표시된 코드"
    ),
    "join": Words("Join", "Entrar", "加入", "참여하기"),
    "joined": Words(
        "You have joined. The first question appears here.",
        "Ya estás en la clase. La primera pregunta aparecerá aquí.",
        "你已加入。第一个问题将显示在这里。",
        "참여했습니다. 첫 번째 질문이 여기에 나타납니다.",
    ),
    "type": Words(
        "Type with the keys below, then press Send.",
        "Escribe con las teclas de abajo y pulsa Enviar.",
        "用下面的按键输入，然后按“发送”。",
        "아래 키로 입력한 다음 보내기를 누르세요.",
    ),
    "press": Words("Press Send.", "Pulsa Enviar.", "请按“发送”。", "보내기를 누르세요."),
    "change": Words(
        "Press Send to count the change.",
        "Pulsa Enviar para que cuente el cambio.",
        "按“发送”以提交修改。",
        "변경한 답을 반영하려면 보내기를 누르세요.",
    ),
    "choose": Words("Press an answer.", "Pulsa una respuesta.", "请点一个答案。", "답을 하나 누르세요."),
    "sending": Words("Sending…", "Enviando…", "正在发送…", "보내는 중…"),
    "counted": Words(
        "Counted. You can change your answer until the answers are locked.",
        "Contada. Puedes cambiar tu respuesta hasta que se bloqueen las respuestas.",
        "已计入。在答案锁定之前，你可以修改。",
        "반영되었습니다. 답이 잠기기 전까지 바꿀 수 있습니다.",
    ),
    "locked": Words(
        "Your answer is counted; the answers are locked.",
        "Tu respuesta cuenta; las respuestas están bloqueadas.",
        "你的答案已计入；答案已锁定。",
        "답이 반영되었고, 이제 답이 잠겼습니다.",
    ),
    "locked without": Words(
        "The answers are locked; none of yours was counted.",
        "Las respuestas están bloqueadas; no se contó ninguna tuya.",
        "答案已锁定；没有计入你的答案。",
        "답이 잠겼습니다. 반영된 답이 없습니다.",
    ),
    "revealed": Words(
        "The answers are revealed.", "Se muestran las soluciones.", "答案已公布。", "정답이 공개되었습니다."
    ),
    "revealed without": Words(
        "The answers are revealed; none of yours was counted.",
        "Se muestran las soluciones; no se contó ninguna respuesta tuya.",
        "答案已公布；没有计入你的答案。",
        "정답이 공개되었습니다. 반영된 답이 없습니다.",
    ),
    "ended": Words(
        "The class has ended. Thank you for taking part.",
        "La clase ha terminado. Gracias por participar.",
        "课堂已结束。感谢参与。",
        "수업이 끝났습니다. 참여해 주셔서 감사합니다.",
    ),
    "offline": Words(
        "No connection; trying again.",
        "Sin conexión; se vuelve a intentar.",
        "没有连接；正在重试。",
        "연결되지 않았습니다. 다시 시도합니다.",
    ),
    "kept": Words(
        "No connection. Your answer is kept here and sent as soon as there is one.",
        "Sin conexión. Tu respuesta se guarda aquí y se enviará en cuanto la haya.",
        "没有连接。你的答案保存在这里，连接恢复后立即发送。",
        "연결되지 않았습니다. 답은 여기에 보관되며 연결되는 대로 보냅니다.",
    ),
    "send": Words("Send", "Enviar", "发送", "보내기"),
    "delete": Words("Delete the last digit", "Borrar la última cifra", "删除最后一位", "마지막 숫자 지우기"),
    "sign": Words("Change the sign", "Cambiar el signo", "改变正负号", "부호 바꾸기"),
    "next": Words("Next number", "Número siguiente", "下一个数", "다음 숫자"),
    "vote": Words("vote {}", "votación {}", "第 {} 次投票", "{}차 투표"),
    "right": Words("right", "correcto", "正确", "정답"),
    "right is": Words("right: {}", "correcto: {}", "正确答案：{}", "정답: {}"),
    "yours": Words("your answer", "tu respuesta", "你的答案", "내 답"),
}

# the prompts of questions about a tensor, by what is asked and of how much
PROMPTS = {
    "code": Words(
        "Which code does this value get?",
        "¿Qué código recibe este valor?",
        "这个值的编码是多少？",
        "이 값은 어떤 코드가 됩니까?",
    ),
    "codes": Words(
        "Which codes do these values get?",
        "¿Qué códigos reciben estos valores?",
        "这些值的编码各是多少？",
        "이 값들은 각각 어떤 코드가 됩니까?",
    ),
    "scale": Words(
        "Which scale does this tensor get?",
        "¿Qué escala recibe este tensor?",
        "这个张量的缩放因子是多少？",
        "이 텐서의 스케일은 얼마입니까?",
    ),
    "scales": Words(
        "Which scales do these blocks get?",
        "¿Qué escalas reciben estos bloques?",
        "这些块的缩放因子各是多少？",
        "이 블록들의 스케일은 각각 얼마입니까?",
    ),
    "zero_point": Words(
        "Which zero point does this tensor get?",
        "¿Qué punto cero recibe este tensor?",
        "这个张量的零点是多少？",
        "이 텐서의 제로 포인트는 얼마입니까?",
    ),
    "zero_points": Words(
        "Which zero points do these blocks get?",
        "¿Qué puntos cero reciben estos bloques?",
        "这些块的零点各是多少？",
        "이 블록들의 제로 포인트는 각각 얼마입니까?",
    ),
    "dequantized": Words(
        "Which dequantized value x̂ comes back for this value?",
        "¿Qué valor decuantizado x̂ se obtiene de este valor?",
        "这个值反量化后的 x̂ 是多少？",
        "이 값을 역양자화한 x̂는 얼마입니까?",
    ),
    "dequantized_values": Words(
        "Which dequantized values x̂ come back for these values?",
        "¿Qué valores decuantizados x̂ se obtienen de estos valores?",
        "这些值反量化后的 x̂ 各是多少？",
        "이 값들을 역양자화한 x̂는 각각 얼마입니까?",
    ),
    "error": Words(
        "What is the error x − x̂ of this value, with its sign?",
        "¿Cuál es el error x − x̂ de este valor, con su signo?",
        "这个值的误差 x − x̂ 是多少（带符号）？",
        "이 값의 오차 x − x̂는 부호를 포함해 얼마입니까?",
    ),
    "errors": Words(
        "What are the errors x − x̂ of these values, with their signs?",
        "¿Cuáles son los errores x − x̂ de estos valores, con su signo?",
        "这些值的误差 x − x̂ 各是多少（带符号）？",
        "이 값들의 오차 x − x̂는 부호를 포함해 각각 얼마입니까?",
    ),
    # of the plan that is offered
    "steps": Words(
        "With one more bit, how many steps are between the marks?",
        "Con un bit más, ¿cuántos pasos hay entre las marcas?",
        "多一位时，刻度之间有多少步？",
        "1비트가 더 있으면 눈금 사이는 몇 단계입니까?",
    ),
    "worst": Words(
        "Which reading is off by the most?",
        "¿Qué lectura tiene el mayor error?",
        "哪个读数的误差最大？",
        "어느 읽은 값의 오차가 가장 큽니까?",
    ),
    "usable": Words(
        "No value is negative. How many codes can they get?",
        "Ningún valor es negativo. ¿Cuántos códigos pueden recibir?",
        "没有负值。这些值可能得到多少种编码？",
        "음수인 값이 없습니다. 이 값들이 받을 수 있는 코드는 몇 개입니까?",
    ),
    "zero_rows": Words(
        "How many of these rows become 0 as a whole?",
        "¿Cuántas de estas filas se vuelven 0 por completo?",
        "这些行中有多少行整行变为 0？",
        "이 행들 가운데 전체가 0이 되는 행은 몇 개입니까?",
    ),
    "bits": Words(
        "How many bits does each element take, including scales and zero points?",
        "¿Cuántos bits ocupa cada elemento, incluidas las escalas y los puntos cero?",
        "算上缩放因子和零点，每个元素占多少位？",
        "스케일과 제로 포인트를 포함해 원소 하나가 몇 비트를 차지합니까?",
    ),
}

KINDS = {
    "absolute value": Words(
        "absolute value forgotten", "falta el valor absoluto", "忘记取绝对值", "절댓값을 빠뜨림"
    ),
    "another block": Words("another block", "otro bloque", "用了另一个块", "다른 블록을 사용함"),
    "another convention": Words("another convention", "otra convención", "另一种约定", "다른 관례"),
    "clamped": Words("clamped", "saturado", "做了截断到边界", "범위로 잘라냄"),
    "code instead of value": Words(
        "code instead of value", "código en vez de valor", "给的是编码而不是值", "값이 아니라 코드"
    ),
    "codes of another format": Words(
        "codes of another format", "códigos de otro formato", "另一种格式的编码", "다른 형식의 코드"
    ),
    "counted from 0": Words("counted from 0", "contado desde 0", "从 0 开始数", "0부터 셈"),
    "decimal point": Words("decimal point", "coma decimal", "小数点位置", "소수점 위치"),
    "divisor": Words("divisor", "divisor", "除数", "나누는 수"),
    "in steps": Words(
        "in steps of the scale", "en pasos de la escala", "以步长为单位", "스케일 단위로 계산함"
    ),
    "inverse": Words("inverse", "inverso", "取了倒数", "역수"),
    "low forgotten": Words("low forgotten", "falta el extremo inferior", "忘记下界", "하한을 빠뜨림"),
    "lowest code forgotten": Words(
        "lowest code forgotten", "falta el código mínimo", "忘记最小编码", "최소 코드를 빠뜨림"
    ),
    "multiplied": Words("multiplied", "multiplicado", "用了乘法", "곱함"),
    "narrow range": Words("narrow range", "rango reducido", "窄范围", "좁은 범위"),
    "not an integer": Words("not an integer", "no es un entero", "不是整数", "정수가 아님"),
    "not clamped": Words("not clamped", "sin saturar", "没有截断到边界", "범위로 잘라내지 않음"),
    "not divided": Words("not divided", "sin dividir", "没有做除法", "나누지 않음"),
    "not rounded": Words("not rounded", "sin redondear", "没有舍入", "반올림하지 않음"),
    "not scaled": Words("not scaled", "sin escalar", "没有除以缩放因子", "스케일로 나누지 않음"),
    "off by one": Words("off by one", "error de una unidad", "相差 1", "1만큼 어긋남"),
    "parameters not counted": Words(
        "scales or zero points not counted",
        "sin contar escalas o puntos cero",
        "没有计入缩放因子或零点",
        "스케일이나 제로 포인트를 빼고 셈",
    ),
    "range": Words("range", "rango", "取值范围", "범위"),
    "rounding": Words("rounding", "redondeo", "舍入", "반올림"),
    "sign of low": Words("sign of low", "signo del extremo inferior", "下界的符号", "하한의 부호"),
    "sign of the error": Words("sign of the error", "signo del error", "误差的符号", "오차의 부호"),
    "sign of x": Words("sign of x", "signo de x", "x 的符号", "x의 부호"),
    "sign of zero point": Words(
        "sign of the zero point", "signo del punto cero", "零点的符号", "제로 포인트의 부호"
    ),
    "swapped": Words("answers swapped", "respuestas intercambiadas", "答案填反了位置", "답의 자리가 바뀜"),
    "symmetry": Words(
        "symmetric or asymmetric", "simétrico o asimétrico", "对称还是非对称", "대칭인지 비대칭인지"
    ),
    "too few digits": Words("too few digits", "faltan cifras", "有效数字不够", "유효 숫자가 부족함"),
    "wrapped": Words("wrapped around", "desbordamiento cíclico", "溢出回绕", "오버플로로 되돌아감"),
    "wrong": Words("no known mistake", "ningún error conocido", "不是已知的错误", "알려진 실수가 아님"),
    "zero left out": Words(
        "0 left out of the range", "el rango no incluye el 0", "范围没有包含 0", "범위에 0이 빠짐"
    ),
    "zero point after scaling": Words(
        "zero point subtracted after scaling",
        "punto cero restado tras escalar",
        "缩放之后才减零点",
        "스케일을 곱한 뒤에 제로 포인트를 뺌",
    ),
    "zero point forgotten": Words(
        "zero point forgotten", "falta el punto cero", "忘记零点", "제로 포인트를 빠뜨림"
    ),
}


def in_every_language() -> str:
    """Return all words as JSON for a page's script: fixed ones, prompts and kinds, by language."""
    tables = {"fixed": FIXED, "prompts": PROMPTS, "kinds": KINDS}
    found = {
        code: {
            table: {key: getattr(words, code) for key, words in entries.items()}
            for table, entries in tables.items()
        }
        for code in LANGUAGES
    }
    names = json.dumps(LANGUAGES, ensure_ascii=False)
    return f"{{names: {names}, words: {json.dumps(found, ensure_ascii=False)}}}".replace("</", "<\\/")
